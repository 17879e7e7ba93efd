"""The command line: thin. One line and exit code 2 for a user's mistake, never a traceback.

A command is a module with `configure(parser)`, imported only when it is asked for: `gnnsafe --help` needs no torch. It
sets `command`, a function of the arguments that gives an `Answer`, which is shown here: in words, or as JSON.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gnnsafe import __version__
from gnnsafe.cli.parsing import COMMANDS, command_module, command_parser, whole_parser
from gnnsafe.display import FALLBACK, shown
from gnnsafe.errors import GnnsafeError, GnnsafeWarning

__all__ = ["COMMANDS", "command_module", "command_parser", "main"]

MISTAKE, DEFECT, INTERRUPTED, UNREAD = 2, 70, 130, 141
"""Exit codes beside 0, 1 (the answer is no) and 3 (alarm); docs/files.md has them all."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    _prepare_output()
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except BrokenPipeError:  # the reader has seen enough, as 'head' has
        return UNREAD
    except (GnnsafeError, OSError) as error:
        return _complain(error)
    except UnicodeEncodeError as error:  # of a path, in a library
        return _complain(f"a path must be UTF-8 (got '{shown(error.object)}'); rename the file or folder")
    except KeyboardInterrupt as stop:
        print(f"gnnsafe: interrupted; {shown(str(stop) or 'no file is half-written')}", file=sys.stderr)
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        print(f"gnnsafe: a defect of gnnsafe {__version__}: please report it with the lines above", file=sys.stderr)
        return DEFECT
    finally:
        _finish_output()


def _complain(message: object) -> int:
    print(f"gnnsafe: {shown(message)}", file=sys.stderr)
    return MISTAKE


def _run(argv: Sequence[str]) -> int:
    try:
        with _warnings_on_one_line():
            asked_for = [word for word in argv if not word.startswith("-")][:1]
            arguments = whole_parser(asked_for).parse_args(argv)
            with _telling(quiet=arguments.quiet, verbose=arguments.verbose) as log:
                return _answered(arguments, log)
    finally:
        sys.stdout.flush()  # what cannot be printed is said


def _answered(arguments: argparse.Namespace, log: logging.Logger) -> int:
    try:
        answer = arguments.command(arguments)
    except Exception:
        log.debug("where the error comes from", exc_info=True)
        raise
    if answer is None:
        return 0
    if getattr(arguments, "json", False):
        print(answer.as_json())
    elif not arguments.quiet:
        answer.show()
    return int(answer.code)


def _prepare_output() -> None:
    """Letters that the terminal has not are printed as similar ones; without a terminal, nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until Python ends
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=FALLBACK)


def _finish_output() -> None:
    """What cannot be printed, as on a full disk or where it is no longer read, is not tried again when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _warnings_on_one_line() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always", GnnsafeWarning)
        warnings.filterwarnings("ignore", "`torch.jit", FutureWarning)  # of PyG's own code, at every start
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, GnnsafeWarning):
                print(f"gnnsafe: {message}", file=sys.stderr)
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield


class _Lines(logging.Formatter):
    """Notes of a command as they are, its warnings as ours, and of the library's steps who says so and when."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging names it
        """Its line."""
        text = shown(record.getMessage())
        if record.levelno >= logging.WARNING:
            return f"gnnsafe: {text}"
        return text if record.name == "gnnsafe.cli" else f"{record.relativeCreated / 1000:8.2f} s {record.name}: {text}"


@contextmanager
def _telling(*, quiet: bool, verbose: bool) -> Iterator[logging.Logger]:
    """What is logged goes to standard error: of the command itself, with `verbose` of the library, too."""
    loggers = {name: logging.getLogger(name) for name in ("gnnsafe", "gnnsafe.cli", "gnnsafe.progress")}
    before = {name: logger.level for name, logger in loggers.items()}
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    loggers["gnnsafe"].addHandler(handler)
    loggers["gnnsafe"].setLevel(logging.DEBUG if verbose else logging.WARNING)
    loggers["gnnsafe.cli"].setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)
    loggers["gnnsafe.progress"].setLevel(logging.ERROR if quiet else logging.NOTSET)
    try:
        yield loggers["gnnsafe.cli"]
    finally:
        loggers["gnnsafe"].removeHandler(handler)
        for name, logger in loggers.items():
            logger.setLevel(before[name])
