"""`gnnsafe explain`: why a node has the score that it has."""

from __future__ import annotations

import argparse

from gnnsafe.cli.options import GRAPH, add_graph_options, given_graph, output, path, place
from gnnsafe.cli.output import Answer, progress_bar
from gnnsafe.cli.parsing import examples
from gnnsafe.detector import load
from gnnsafe.errors import require
from gnnsafe.graph import node_number
from gnnsafe.report.ego_graph import ENDINGS
from gnnsafe.report.plotting import altair

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `explain`."""
    parser.description = (
        "Says where a node's score stands among held-out ID nodes, how much of it is its own and how much "
        "comes from which other nodes, what each piece of evidence adds where the method weighs several, what class "
        "the model sees and which training classes are nearest. With --out it also draws the nodes around it, coloured "
        "by score."
    )
    parser.epilog = examples(
        "gnnsafe explain detector/ new_graph/ --node 17",
        "gnnsafe explain detector/ new_graph/ --node 17 --out why.png",
    )
    parser.add_argument("detector", metavar="DETECTOR", type=place, help="the folder of a detector")
    parser.add_argument("graph", metavar="GRAPH", type=place, help=GRAPH)
    parser.add_argument("--node", metavar="ID", required=True, help="the node's id, as in the table of nodes")
    parser.add_argument("--out", metavar="FILE", type=path, help=f"a picture: {', '.join(ENDINGS)}")
    add_graph_options(parser)
    parser.set_defaults(command=_explain)


def _explain(arguments: argparse.Namespace) -> Answer:
    out = arguments.out
    if out is not None:
        require(out.suffix.lower() in ENDINGS, "--out", f"end in {', '.join(ENDINGS)}", f"'{out}'")
        output(arguments, "")
        altair()
    detector = load(arguments.detector)
    with progress_bar() as progress:
        task = progress.add_task(f"Reading {arguments.graph}", total=3)
        data = given_graph(arguments, undirected=detector.undirected)
        node = node_number(data, arguments.node, "--node")
        progress.update(task, description="Scoring", completed=1)
        why = detector.explain(data, node=node)
        progress.update(task, description="Drawing", completed=2)
        if out is not None:
            why.draw(out)
    return Answer([str(why)], why.to_dict(), [] if out is None else [("Picture", out)])
