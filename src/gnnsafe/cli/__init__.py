"""The command line: thin. One line and exit code 2 for a user's mistake, never a traceback.

A command is a module with `configure(parser)`, imported only when it is asked for: `gnnsafe --help` needs no torch.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from gnnsafe import __version__
from gnnsafe.display import FALLBACK, shown
from gnnsafe.errors import GnnsafeError, GnnsafeWarning

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "demo": "OOD detection on real Cora under three shifts, beside the paper's figures",
    "datasets": "list the data sets, their shifts, and whether they are at hand; or check a graph of your own",
    "methods": "list the methods and the training objectives: kind, what they need, formula and reference",
    "train": "a calibrated detector from a graph of your own: gnnsafe train graph/ --out detector/",
    "score": "decisions about every node of a graph: gnnsafe score detector/ graph/ --out scores.parquet",
    "score-logits": "the same of logits that any model gave: gnnsafe score-logits logits/ edges/ --detector detector/",
    "refit": "another method on a trained detector: gnnsafe refit detector/ graph/ --method knn --out other/",
    "explain": "why a node has its score: gnnsafe explain detector/ graph/ --node ID",
    "diagnose": "which score suits which trouble on your graph: gnnsafe diagnose detector/ graph/",
    "check": "whether stated false-alarm rates hold on a graph: gnnsafe check detector/ graph/",
    "monitor": "an alarm for drift over many graphs: gnnsafe monitor detector/ graph/ --history history.db",
    "inspect": "what is in the folder of a detector: gnnsafe inspect detector/",
    "serve": "detectors over HTTP, with a page: gnnsafe serve detector/ --graph graph/",
    "bench": "every method on every data set and shift over several seeds, resumable; then their order",
    "leaderboard": "a page of all figures, each with its record; 'leaderboard check' for records that are to join",
    "report": "the paper's tables and figures, ranks and curves from the records of 'gnnsafe bench'",
}
"""What each command does, in a line; it is the module of that name, with _ for -."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 2 for a user's mistake, 130 where it was interrupted."""
    _prepare_output()
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except BrokenPipeError:  # whoever reads has seen enough, as 'head' has
        return 1
    except (GnnsafeError, OSError) as error:
        print(f"gnnsafe: {shown(error)}", file=sys.stderr)
        return 2
    except UnicodeEncodeError as error:  # of a path, in a library
        print(
            f"gnnsafe: a path must be UTF-8 (got '{shown(error.object)}'); rename the file or folder", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print("gnnsafe: interrupted; no file is half-written", file=sys.stderr)
        return 130
    finally:
        _finish_output()


def _run(argv: Sequence[str]) -> int:
    try:
        with _warnings_on_one_line():
            arguments = _parsed(argv)
            return int(arguments.command(arguments) or 0)
    finally:
        sys.stdout.flush()  # what cannot be printed is said


def _prepare_output() -> None:
    """Letters that the terminal has not are printed as similar ones; without a terminal, nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until Python ends
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=FALLBACK)


def _finish_output() -> None:
    """What cannot be printed, as on a full disk or where nobody reads any more, is not tried again when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _warnings_on_one_line() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always", GnnsafeWarning)
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, GnnsafeWarning):
                print(f"gnnsafe: {message}", file=sys.stderr)
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield


class _Parser(argparse.ArgumentParser):
    """argparse, with its complaints on one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {shown(message)}; see {self.prog} --help\n")


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="gnnsafe",
        description="Which nodes of a graph lie outside what its classifier was trained on.",
        epilog="Scores are one per node, higher = more out-of-distribution. Start with: gnnsafe demo; with a graph of "
        "your own: gnnsafe train --help",
    )
    parser.add_argument("--version", action="version", version=f"gnnsafe {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    asked_for = next((word for word in argv if not word.startswith("-")), None)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name == asked_for:
            command_module(name).configure(command)
    return parser.parse_args(argv)


def command_module(name: str) -> ModuleType:
    """The module of a command, imported when it is first asked for; its `configure` describes the command."""
    return import_module(f"gnnsafe.cli.{name.replace('-', '_')}")
