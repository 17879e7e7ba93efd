"""The command line's reference, made of the commands' own parsers: what `gnnsafe COMMAND --help` says."""

from __future__ import annotations

import argparse
import os

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from gnnsafe.cli.parsing import COMMANDS, GROUPS, command_parser

PAGE = "commands.md"
HEAD = """# The command line

What `gnnsafe COMMAND --help` says, made of the commands when this page was built. [Your files](files.md) walks
through the commands with a graph.

Every command also takes these, except for `completion` and `serve`, which have no figures to print as JSON:

| argument | what it says |
|---|---|
| `--json` | print one JSON object with all figures, and no text; what is NaN or infinite is `null` |
| `-q`, `--quiet` | no text, no progress; warnings and errors stay |
| `-v`, `--verbose` | tell each step on standard error, and where an error comes from |

`NO_COLOR=1` leaves colours out. [Exit codes](files.md#exit-codes) are the same for all commands.
"""
COMMON = ("-h", "--json", "-q", "-v")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, PAGE, content=reference()))
    return files


def reference() -> str:
    """The page: a section for each command."""
    os.environ["COLUMNS"] = "100"  # as wide as argparse breaks lines of usage
    return "\n\n".join([HEAD, _contents(), *(section(name, text) for name, text in COMMANDS.items())]) + "\n"


def _contents() -> str:
    links = {title: [f"[`{name}`](#gnnsafe-{name})" for name in commands] for title, commands in GROUPS.items()}
    return "\n".join(f"- {title}: {', '.join(found)}" for title, found in links.items())


def section(name: str, text: str) -> str:
    """What a command does, how it is called, and its arguments in a table."""
    parser = command_parser(name)
    actions = [action for action in parser._actions if not {*action.option_strings} & {*COMMON}]
    rows = [f"| {_names(action)} | {_cell(parser, action)} |" for action in actions]
    parts = [
        f"## gnnsafe {name}",
        _plain(parser.description or text),
        f"```text\n{parser.format_usage().removeprefix('usage: ').rstrip()}\n```",
        "\n".join(["| argument | what it says |", "|---|---|", *rows]) if rows else "",
        *map(_paragraph, (parser.epilog or "").split("\n\n")),
    ]
    return "\n\n".join(part for part in parts if part)


def _names(action: argparse.Action) -> str:
    chosen = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    value = action.metavar or chosen
    takes = "" if action.nargs == 0 else f" {value}"
    shown = action.option_strings[-1] + takes if action.option_strings else str(value)
    return "`" + shown.replace("|", "\\|") + "`"


def _cell(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    text += "; required" if action.option_strings and action.required else ""
    return _plain(text).replace("|", "\\|")


def _paragraph(text: str) -> str:
    """Examples, whose lines are indented, as a block of a shell."""
    first, *commands = text.split("\n")
    if not commands:
        return _plain(first)
    block = "\n".join(command.strip() for command in commands if command)
    return f"{first}\n\n```sh\n{block}\n```"


def _plain(text: str) -> str:
    """Text of a terminal as Markdown: what would be markup there is none here."""
    return text.replace("<", "&lt;").replace("_", "\\_").replace("%%", "%")
