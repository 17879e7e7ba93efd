"""How the command line is read: the commands in their groups, the parser of each, and its help."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Collection
from importlib import import_module
from types import ModuleType
from typing import NoReturn

from gnnsafe import __version__
from gnnsafe.display import shown

__all__ = ["COMMANDS", "GROUPS", "command_module", "command_parser", "examples", "whole_parser"]

GROUPS = {
    "start": {
        "demo": "OOD detection on real Cora under three shifts, beside the paper's figures",
        "doctor": "what is installed here, what is missing, and what to do about it",
        "datasets": "list the data sets, their shifts, and whether they are available; or check a graph of your own",
        "methods": "list the methods and the training objectives: kind, what they need, formula and reference",
        "completion": "completion of commands and options for your shell",
    },
    "your own graph": {
        "train": "a calibrated detector from a graph with labels",
        "score": "decisions about every node of a graph",
        "score-logits": "the same of logits that any model gave",
        "explain": "why a node has its score",
        "check": "whether stated false-alarm rates hold on a graph",
        "diagnose": "which score suits which trouble on your graph",
        "refit": "another method on a trained detector",
        "inspect": "what is in the folder of a detector",
    },
    "over time": {
        "monitor": "an alarm for drift over many graphs",
        "serve": "detectors over HTTP, with a page",
    },
    "benchmarks": {
        "bench": "every method on every data set and shift over several seeds, resumable; then their order",
        "report": "the paper's tables and figures, ranks and curves from the records of 'gnnsafe bench'",
        "leaderboard": "a page of all figures, each with its record; 'leaderboard check' for records that are to join",
    },
}
COMMANDS = {name: text for commands in GROUPS.values() for name, text in commands.items()}
"""What each command does, in a line; it is the module of that name, with _ for -."""

WITHOUT_FIGURES = ("completion", "serve")


class Help(argparse.HelpFormatter):
    """Paragraphs filled as argparse does, but lists of commands and examples, whose lines are indented, left alone."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(part if "\n  " in part else fill(part, width, indent) for part in text.split("\n\n"))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)  # names of methods stay whole


class Parser(argparse.ArgumentParser):
    """argparse, with its complaints on one line."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**{"formatter_class": Help, **settings})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """The complaint, and exit code 2."""
        self.exit(2, f"{self.prog}: {shown(message)}; see {self.prog} --help\n")


def whole_parser(described: Collection[str]) -> Parser:
    """The parser of the command line; only commands in `described` have their options, since these cost imports."""
    start = examples("gnnsafe demo", "gnnsafe train graph/ --out detector/",
                     "gnnsafe score detector/ new_graph/ --out scores.parquet")  # fmt: skip
    parser = Parser(
        prog="gnnsafe",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="Which nodes of a graph lie outside what its classifier was trained on.\n\n" + _listed(),
        epilog=start + "Scores are one per node, higher = more out-of-distribution. 'gnnsafe COMMAND --help' has the "
        "options and examples of each command.",
    )
    parser.add_argument("--version", action="version", version=f"gnnsafe {__version__}")
    commands = parser.add_subparsers(prog="gnnsafe", required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name in described:
            _describe(name, command)
    return parser


def command_parser(name: str) -> Parser:
    """The parser of one command by itself, as `gnnsafe NAME` has it."""
    return _describe(name, Parser(prog=f"gnnsafe {name}"))


def command_module(name: str) -> ModuleType:
    """The module of a command, imported when first needed; its `configure` describes the command."""
    return import_module(f"gnnsafe.cli.{name.replace('-', '_')}")


def examples(*commands: str) -> str:
    """The paragraph of a help text that shows commands, to be followed by others."""
    return "Examples:\n" + "".join(f"  {command}\n" for command in commands) + "\n"


def _describe(name: str, parser: Parser) -> Parser:
    command_module(name).configure(parser)
    output = parser.add_argument_group("output")
    if name not in WITHOUT_FIGURES:
        output.add_argument("--json", action="store_true", help="print one JSON object with all figures, and no text")
    how_much = output.add_mutually_exclusive_group()
    how_much.add_argument("-q", "--quiet", action="store_true", help="no text, no progress; warnings and errors stay")
    how_much.add_argument("-v", "--verbose", action="store_true", help="tell each step, and where an error comes from")
    return parser


def _listed() -> str:
    """The commands in their groups."""
    width, indent = shutil.get_terminal_size().columns - 2, max(map(len, COMMANDS)) + 4
    lines = [
        [f"{title}:", *(line for name, text in commands.items()
                        for line in textwrap.wrap(text, width, initial_indent=f"  {name:<{indent - 2}}",
                                                  subsequent_indent=" " * indent))]
        for title, commands in GROUPS.items()
    ]  # fmt: skip
    return "\n\n".join("\n".join(part) for part in lines)
