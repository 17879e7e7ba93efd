"""`gnnsafe completion`: a script by which a shell completes commands, options and what may be chosen."""

from __future__ import annotations

import argparse

import shtab

from gnnsafe.cli.parsing import COMMANDS, examples, whole_parser

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `completion`."""
    parser.description = (
        "Prints a script that completes gnnsafe's commands, options, their choices and paths. It is read once by the "
        "shell, so that a press of Tab starts no Python. Make it again after an upgrade."
    )
    parser.epilog = examples(
        "gnnsafe completion bash > ~/.local/share/bash-completion/completions/gnnsafe",
        "gnnsafe completion zsh > ~/.zfunc/_gnnsafe",
        "gnnsafe completion fish > ~/.config/fish/completions/gnnsafe.fish",
    )
    parser.epilog += "For zsh, '~/.zfunc' must be in $fpath before compinit is called."
    parser.add_argument(
        "shell", metavar="SHELL", choices=shtab.SUPPORTED_SHELLS, help=", ".join(shtab.SUPPORTED_SHELLS)
    )
    parser.set_defaults(command=_completion)


def _completion(arguments: argparse.Namespace) -> None:
    from gnnsafe.cli.options import path, place

    whole = whole_parser(COMMANDS)
    subcommands = next(action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    subcommands.help = None  # the help lists them in groups of its own, and would leave them out
    for command in subcommands.choices.values():
        for action in command._actions:
            if action.type in (path, place):
                action.complete = shtab.FILE
    print(shtab.complete(whole, shell=arguments.shell))
