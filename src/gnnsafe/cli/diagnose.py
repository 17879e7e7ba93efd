"""`gnnsafe diagnose`: which detector suits which trouble on a graph."""

from __future__ import annotations

import argparse

from gnnsafe.cli.options import GRAPH, add_graph_options, given_graph, place, positive, whole
from gnnsafe.cli.output import Answer, progress_bar
from gnnsafe.cli.parsing import examples
from gnnsafe.detector import load
from gnnsafe.fitting.known_graph import with_known_split

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `diagnose`."""
    parser.description = (
        "Says which score suits which trouble on the graph that a detector was trained on: new classes, odd nodes "
        "scattered among others, shifted regions, or a whole graph that shifts. No OOD data is needed: trouble is "
        "planted among held-out nodes, a known class is taken out of all that detectors see, and every candidate looks "
        "for it. Each kind of trouble has a verdict: the detector as it is, unless another is clearly better."
    )
    parser.epilog = examples("gnnsafe diagnose detector/ graph/") + (
        "Read the verdict of the trouble that you expect; where you know "
        "none, the last one. Figures are of planted trouble: a class that training never saw is harder to find, and "
        "benchmarks/diagnosis.md has how often the advice was right about real trouble."
    )
    parser.add_argument("detector", metavar="DETECTOR", type=place, help="the folder of a detector")
    parser.add_argument("graph", metavar="GRAPH", type=place, help=f"that it was trained on, with labels: {GRAPH}")
    parser.add_argument("--draws", metavar="N", type=positive, default=3, help="plantings of each kind (default: 3)")
    parser.add_argument("--seed", metavar="N", type=whole, default=0, help="the seed of what is planted (default: 0)")
    add_graph_options(parser)
    parser.set_defaults(command=_diagnose)


def _diagnose(arguments: argparse.Namespace) -> Answer:
    detector = load(arguments.detector)
    with progress_bar() as progress:
        progress.add_task(f"Reading {arguments.graph}", total=None)
        data = given_graph(arguments, undirected=detector.undirected)
        data = with_known_split(detector, data)
    found = detector.diagnose(data, draws=arguments.draws, seed=arguments.seed)  # which has a bar of its own
    return Answer([found], found.to_dict())
