"""`gnnsafe methods`: every method and objective, with its formula."""

from __future__ import annotations

import argparse

from gnnsafe.bench.recipes import recipes
from gnnsafe.cli.options import terminal
from gnnsafe.methods import METHODS
from gnnsafe.report.methods import methods_table
from gnnsafe.training import OBJECTIVES

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `methods`."""
    parser.description = (
        "Lists every method that scores nodes and every objective that trains a model. A method's kind "
        "says what it needs: any classifier (post-hoc), a model made for it, the training graph beside the new one "
        "(transductive), or no model at all (trivial: to be beaten)."
    )
    parser.set_defaults(command=_methods)


def _methods(arguments: argparse.Namespace) -> None:
    console = terminal()
    console.print(methods_table(METHODS, OBJECTIVES, recipes("cora", "structure")))
    console.print("Propagated(method, steps, alpha) propagates any method's score along the edges.", soft_wrap=True)
