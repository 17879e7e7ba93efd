"""`gnnsafe check`: whether the stated false-alarm rates of a detector hold on a graph."""

from __future__ import annotations

import argparse

from gnnsafe.cli.options import GRAPH, add_graph_options, given_graph, place
from gnnsafe.cli.output import Answer, progress_bar
from gnnsafe.cli.parsing import examples
from gnnsafe.detector import load
from gnnsafe.fitting.known_graph import held_out_nodes

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `check`."""
    parser.description = (
        "Says whether the false-alarm rates that a detector states hold on a graph: how many of its held-out ID nodes "
        "are flagged at each rate, with 95 % intervals, and what chance alone would give. Those are the nodes that "
        "the column 'split' calls test, or all labelled nodes; never one that trained or calibrated the detector, nor "
        "one of a class that training never saw."
    )
    parser.epilog = examples("gnnsafe check detector/ graph/") + (
        "On the graph that the detector was trained on rates should hold; a "
        "later one shows whether ID nodes are still like those that calibrated it: if not, calibrate again. Exit code: "
        "0 where all rates hold, 1 where one is exceeded by more than chance allows, 2 for a mistake."
    )
    parser.add_argument("detector", metavar="DETECTOR", type=place, help="the folder of a detector")
    parser.add_argument("graph", metavar="GRAPH", type=place, help=f"with labels: {GRAPH}")
    add_graph_options(parser)
    parser.set_defaults(command=_check)


def _check(arguments: argparse.Namespace) -> Answer:
    detector = load(arguments.detector)
    detector.calibrated()
    with progress_bar() as progress:
        task = progress.add_task(f"Reading {arguments.graph}", total=2)
        data = given_graph(arguments, undirected=detector.undirected)
        data, nodes = held_out_nodes(detector, data)
        progress.update(task, description="Scoring", completed=1)
        check = detector.check_calibration(data, nodes)
    verdict = "all rates hold" if check.holds else "false alarms are more frequent than stated"
    return Answer([str(check), verdict], check.to_dict(), code=0 if check.holds else 1)
