"""`gnnsafe train`: a calibrated detector from a graph in files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gnnsafe.bench.recipes import BACKBONES
from gnnsafe.cli.options import GRAPH, add_graph_options, given_graph, positive, progress_bar, terminal, whole
from gnnsafe.datasets import read_graph
from gnnsafe.errors import require
from gnnsafe.files import writable
from gnnsafe.fitting import OWN_OBJECTIVES, Fitting, fitting
from gnnsafe.methods import METHODS
from gnnsafe.report.catalogue import graph_lines
from gnnsafe.saving import FILE

__all__ = ["configure"]

# but for what only a model made for it can be scored by
SCORED_BY = tuple(name for name, method in METHODS.items() if method.kind != "model")


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `train`."""
    parser.description = (
        "Trains a node classifier on a graph with labels, binds an OOD score to it and calibrates it on "
        "validation nodes. The folder that it writes holds everything that 'gnnsafe score' needs, the model too. "
        "Without a column 'split' (train, val, test) one is drawn: 6 : 2 : 2 of the labelled nodes."
    )
    parser.epilog = (
        "Example: gnnsafe train graph/ --out detector/, then gnnsafe score detector/ new_graph/ --out "
        "scores.parquet. help(gnnsafe.read_graph) says which columns the tables have; 'gnnsafe datasets graph/' checks "
        "them; 'gnnsafe methods' explains methods and objectives."
    )
    parser.add_argument("graph", metavar="GRAPH", help=GRAPH)
    parser.add_argument("--out", metavar="FOLDER", type=Path, required=True, help="where the detector is written")
    parser.add_argument(
        "--exposure", metavar="GRAPH", help="a graph of nodes that are known to be OOD, to learn from: a folder, an "
        ".npz or a .pt file",
    )  # fmt: skip
    parser.add_argument("--backbone", choices=BACKBONES, default="gcn", help="the model (default: gcn)")
    parser.add_argument(
        "--objective", choices=OWN_OBJECTIVES, help="(default: cross-entropy; with --exposure energy-margin)"
    )
    parser.add_argument("--method", choices=SCORED_BY, default="gnnsafe", help="the OOD score (default: gnnsafe)")
    parser.add_argument("--epochs", metavar="N", type=positive, default=200, help="of training (default: 200)")
    parser.add_argument("--seed", metavar="N", type=whole, default=0, help="of weights and split (default: 0)")
    add_graph_options(parser)
    parser.set_defaults(command=_train)


def _train(arguments: argparse.Namespace) -> None:
    writable("--out", arguments.out / FILE, file=FILE)
    with progress_bar() as progress:
        task = progress.add_task(f"Reading {arguments.graph}", total=None)
        data = given_graph(arguments)
        require("y" in data, "label", "be given for training", "a graph without labels", "add a column 'label'")
        exposure = None if arguments.exposure is None else _exposure(arguments)
        progress.update(task, description="Training", total=arguments.epochs)
        settings = {name: getattr(arguments, name) for name in ("backbone", "objective", "method", "epochs", "seed")}
        fitted = fitting(data, exposure=exposure, **settings, each_epoch=lambda _: progress.advance(task))
    fitted.detector.notes = _notes(arguments, fitted)
    fitted.detector.save(arguments.out)
    drawn = [] if "train_mask" in data else [f"no split was given: this one is drawn from seed {arguments.seed}"]
    console = terminal()
    console.print(*graph_lines(fitted.data), *drawn, *_lines(fitted), sep="\n", soft_wrap=True)
    console.print(f"Detector: {arguments.out.absolute()}", soft_wrap=True)


def _exposure(arguments: argparse.Namespace) -> Any:
    return read_graph(
        arguments.exposure, undirected=arguments.undirected, drop_unknown_edges=arguments.drop_unknown_edges
    )


def _notes(arguments: argparse.Namespace, fitted: Fitting) -> dict[str, Any]:
    """What a reader of the detector may ask: how it came about, and how edges are to be read."""
    return {
        "graph": str(arguments.graph),
        "nodes": fitted.data.num_nodes,
        "edges": fitted.data.num_edges,
        "undirected": arguments.undirected,
        "objective": repr(fitted.objective),
        "exposure": arguments.exposure,
        "epochs": arguments.epochs,
        "seed": arguments.seed,
        "accuracy": fitted.accuracy,
    }


def _lines(fitted: Fitting) -> list[str]:
    named = {"train": "training", "val": "validation", "test": "test"}
    right = ", ".join(f"{value:.1%} of {named[part]} nodes" for part, value in fitted.accuracy.items())
    lines = [
        f"trained by {fitted.objective!r}, {len(fitted.history.loss)} epochs, best after "
        f"{fitted.history.best_epoch + 1}; right on {right}",
        f"{fitted.detector!r}, calibrated on {int(fitted.data[fitted.calibrated_on].sum()):,} "
        f"{named[fitted.calibrated_on.removesuffix('_mask')]} nodes",
    ]
    return [*lines, *(str(fitted.check).splitlines() if fitted.check else [])]
