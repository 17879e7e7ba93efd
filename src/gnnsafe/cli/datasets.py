"""`gnnsafe datasets`: the available data sets, or what is in a graph of the user's own."""

from __future__ import annotations

import argparse

from gnnsafe.cli.options import GRAPH, add_graph_options, given_graph, place
from gnnsafe.cli.output import Answer
from gnnsafe.cli.parsing import examples
from gnnsafe.datasets import DATASETS
from gnnsafe.report.catalogue import catalogue_figures, catalogue_table, graph_figures, graph_lines

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `datasets`."""
    parser.description = (
        "Lists every data set that load_benchmark knows: published counts, the shifts it can be under, and "
        "whether its files are in the data root, the cache or an installed package. With GRAPH, reads a graph "
        "of your own instead, as gnnsafe.read_graph does, and says what is in it or which rule it breaks."
    )
    parser.epilog = examples("gnnsafe datasets", "gnnsafe datasets graph/ --undirected")
    parser.add_argument("--data", metavar="FOLDER", type=place, help="the data root (default: $GNNSAFE_DATA)")
    parser.add_argument("graph", metavar="GRAPH", nargs="?", type=place, help=GRAPH)
    add_graph_options(parser)
    parser.set_defaults(command=_datasets)


def _datasets(arguments: argparse.Namespace) -> Answer:
    if arguments.graph is not None:
        graph = graph_figures(given_graph(arguments))
        return Answer(graph_lines(graph), graph)
    known = catalogue_figures(DATASETS, arguments.data)
    load = "Load one with gnnsafe.load_benchmark(name, shift=...)."
    return Answer([catalogue_table(known), load], {"datasets": known})
