"""The command line's reference, made of the commands' own parsers: what `gnnsafe COMMAND --help` says."""

from __future__ import annotations

import argparse
import os

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from gnnsafe.cli import COMMANDS, command_module

PAGE = "commands.md"
HEAD = """# The command line

What `gnnsafe COMMAND --help` says, made of the commands when this page was built. [Your files](files.md) walks
through the commands with a graph.

A command ends with 0 where all went well, with 2 and one line on standard error for a mistake in what it was given,
with 130 where it was interrupted.
"""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, PAGE, content=reference()))
    return files


def reference() -> str:
    """The page: a section for each command."""
    os.environ["COLUMNS"] = "100"  # as wide as argparse breaks lines of usage
    return "\n\n".join([HEAD, *(section(name, text) for name, text in COMMANDS.items())]) + "\n"


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of a command."""
    parser = argparse.ArgumentParser(prog=f"gnnsafe {name}")
    command_module(name).configure(parser)
    return parser


def section(name: str, text: str) -> str:
    """What a command does, how it is called, and its arguments in a table."""
    parser = parser_of(name)
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    for action in actions:  # the table lists what may be chosen, the line of usage need not
        action.metavar = action.metavar or (action.dest.upper() if action.choices else None)
    rows = [f"| {_names(action)} | {_cell(parser, action)} |" for action in actions]
    parts = [
        f"## gnnsafe {name}",
        _plain(parser.description or text),
        f"```text\n{parser.format_usage().removeprefix('usage: ').rstrip()}\n```",
        "\n".join(["| argument | what it says |", "|---|---|", *rows]),
        _plain(parser.epilog or ""),
    ]
    return "\n\n".join(part for part in parts if part)


def _names(action: argparse.Action) -> str:
    value = action.metavar or action.dest.upper()
    takes = "" if action.nargs == 0 else f" {value}"
    shown = action.option_strings[-1] + takes if action.option_strings else str(value)
    return "`" + shown.replace("|", "\\|") + "`"


def _cell(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    text += f"; one of {', '.join(map(str, action.choices))}" if action.choices else ""
    text += "; required" if action.option_strings and action.required else ""
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """Text of a terminal as Markdown: what would be markup there is none here."""
    return text.replace("<", "&lt;").replace("_", "\\_").replace("%%", "%")
