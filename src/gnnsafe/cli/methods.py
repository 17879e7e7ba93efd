"""`gnnsafe methods`: every method and objective, with its formula."""

from __future__ import annotations

import argparse

from gnnsafe.bench.recipes import recipes
from gnnsafe.cli.output import Answer
from gnnsafe.cli.parsing import examples
from gnnsafe.methods import METHODS
from gnnsafe.report.methods import method_figures, methods_table
from gnnsafe.training import OBJECTIVES

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `methods`."""
    parser.description = (
        "Lists every method that scores nodes and every objective that trains a model. A method's kind "
        "says what it needs: any classifier (post-hoc), a model made for it, the training graph beside the new one "
        "(transductive), or no model at all (trivial: to be beaten)."
    )
    parser.epilog = examples("gnnsafe methods", "gnnsafe methods --json")
    parser.set_defaults(command=_methods)


def _methods(arguments: argparse.Namespace) -> Answer:
    known = method_figures(METHODS, OBJECTIVES, recipes("cora", "structure"))
    return Answer(
        [methods_table(known), "Propagated(method, steps, alpha) propagates any method's score along the edges."], known
    )
