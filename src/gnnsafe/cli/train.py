"""`gnnsafe train`: a calibrated detector from a graph in files."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import asdict
from typing import Any, get_args

from gnnsafe.bench.recipes import backbones
from gnnsafe.cli.options import (
    GRAPH,
    add_device_option,
    add_graph_options,
    add_method_option,
    given_files,
    given_graph,
    path,
    place,
    positive,
    whole,
)
from gnnsafe.cli.output import Answer, progress_bar
from gnnsafe.cli.parsing import examples
from gnnsafe.datasets import read_graph
from gnnsafe.errors import require
from gnnsafe.files import writable
from gnnsafe.fitting import AUTO, Calibrated, Fitting, fit_detector
from gnnsafe.graph import Data
from gnnsafe.methods import METHODS
from gnnsafe.report.catalogue import graph_figures, graph_lines
from gnnsafe.saving import FILE
from gnnsafe.scaling import Scale
from gnnsafe.training import OBJECTIVES

__all__ = ["calibrated_figures", "calibrated_lines", "configure", "rate_notes"]

SPLIT = {"train": "training", "val": "validation", "test": "test"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `train`."""
    parser.description = (
        "Trains a node classifier on a graph with labels, binds an OOD score to it and calibrates it on "
        "validation nodes. The folder that it writes holds everything that 'gnnsafe score' needs, the model too. "
        "Without a column 'split' (train, val, test) one is drawn: 6 : 2 : 2 of the labelled nodes. Features are "
        "scaled, and the scaling is kept with the detector. Prints the model's accuracy beside what its largest "
        "class alone would reach, and warns, with a remedy, of what makes a detector useless."
    )
    parser.epilog = examples(
        "gnnsafe train graph/ --out detector/",
        "gnnsafe train graph/ --backbone auto --split-by-time --out detector/",
        "gnnsafe train graph/ --exposure odd_graph/ --out detector/",
    ) + (
        "Then: gnnsafe score detector/ new_graph/ --out scores.parquet. help(gnnsafe.read_graph) says which columns "
        "the tables have; 'gnnsafe datasets graph/' checks them; 'gnnsafe methods' explains methods and objectives."
    )
    parser.add_argument("graph", metavar="GRAPH", type=place, help=GRAPH)
    parser.add_argument("--out", metavar="FOLDER", type=path, required=True, help="where the detector is written")
    parser.add_argument(
        "--exposure", metavar="GRAPH", type=place, help="a graph of nodes that are known to be OOD, to learn from: a "
        "folder, an .npz or a .pt file",
    )  # fmt: skip
    parser.add_argument(
        "--backbone", metavar="NAME", choices=(*backbones(), "auto"), help=f"the model: {', '.join(backbones())} "
        f"(default: gcn, or the method's own); auto trains {', '.join(AUTO)} and keeps the one that is right on most "
        "validation nodes",
    )  # fmt: skip
    parser.add_argument(
        "--objective", metavar="NAME", choices=OBJECTIVES, help="the loss that the model is trained by: "
        f"{', '.join(OBJECTIVES)} (default: the method's, cross-entropy for most; with --exposure energy-margin)",
    )  # fmt: skip
    add_method_option(parser, METHODS)
    parser.add_argument("--epochs", metavar="N", type=positive, default=200, help="epochs of training (default: 200)")
    parser.add_argument("--seed", metavar="N", type=whole, default=0, help="the seed of weights and split (default: 0)")
    parser.add_argument(
        "--scale", choices=get_args(Scale), default="auto", help="features: 'standard' subtracts each column's mean "
        "and divides by its standard deviation, both of training nodes; 'rows' divides rows by their sum; 'none' "
        "leaves them; 'auto' (default) takes rows for a bag of words (no value below 0, half of them 0, no column "
        "without a 0, none 100 times as large as the usual one), else standard",
    )  # fmt: skip
    parser.add_argument(
        "--split-by-time", action="store_true", help="split by the column 'timestamp', in place of any column 'split': "
        "the oldest 60%% of labelled nodes train, the next 20%% validate and calibrate, the latest 20%% test",
    )  # fmt: skip
    add_device_option(parser)
    add_graph_options(parser)
    parser.set_defaults(command=_train)


def _train(arguments: argparse.Namespace) -> Answer:
    writable("--out", arguments.out / FILE, file=FILE, inputs=given_files(arguments))
    with progress_bar() as progress:
        task = progress.add_task(f"Reading {arguments.graph}", total=None)
        data = given_graph(arguments)
        require("y" in data, "label", "be given for training", "a graph without labels", "add a column 'label'")
        exposure = None if arguments.exposure is None else _exposure(arguments)
        settings = {
            name: getattr(arguments, name)
            for name in ("backbone", "objective", "method", "epochs", "seed", "scale", "device")
        }
        result = fit_detector(
            data,
            exposure=exposure,
            by_time=arguments.split_by_time,
            undirected=arguments.undirected,
            **settings,
            begin=lambda name: progress.reset(task, description=f"Training {name}", total=arguments.epochs),
            each_epoch=lambda _: progress.advance(task),
        )
    result.detector.notes = _notes(arguments, result)
    result.detector.save(arguments.out)
    for warning in result.warnings:
        warnings.warn(warning, stacklevel=1)
    graph = graph_figures(result.data)
    lines = [*graph_lines(graph), *_split(arguments, data), *_lines(result), *calibrated_lines(result)]
    return Answer(
        lines, {"graph": graph, **_figures(result), **calibrated_figures(result)}, [("Detector", arguments.out)]
    )


def _exposure(arguments: argparse.Namespace) -> Any:
    return read_graph(arguments.exposure, drop_unknown_edges=arguments.drop_unknown_edges)


def _notes(arguments: argparse.Namespace, result: Fitting) -> dict[str, Any]:
    """What a reader of the detector may ask: how it came about."""
    return {
        "graph": str(arguments.graph),
        "nodes": result.data.num_nodes,
        "edges": result.data.num_edges,
        "objective": repr(result.objective),
        "exposure": arguments.exposure,
        "epochs": arguments.epochs,
        "seed": arguments.seed,
        **rate_notes(result),
    }


def rate_notes(result: Calibrated) -> dict[str, dict[str, float]]:
    """How often the model is right, as notes of a detector."""
    rates = {name: asdict(rate) for name, rate in result.rates.items()}
    named = {"accuracy": "accuracy", "balanced accuracy": "balanced", "majority class": "majority"}
    return {note: {part: rate[kind] for part, rate in rates.items()} for note, kind in named.items()}


def _split(arguments: argparse.Namespace, data: Data) -> list[str]:
    if arguments.split_by_time:
        return ["split by time: the oldest 60% of labelled nodes train, the next 20% validate, the latest 20% test"]
    return [] if "train_mask" in data else [f"no split was given: this one is drawn from seed {arguments.seed}"]


def _lines(result: Fitting) -> list[str]:
    trained, history = result.trained, result.trained.history
    lines = [
        f"features: {result.detector.scaling or 'as they are'}",
        f"{trained.backbone} trained by {result.objective!r}, {len(history.loss)} epochs, best after "
        f"{history.best_epoch + 1}",
    ]
    if len(result.tried) > 1:
        reached = ", ".join(f"{one.backbone} {one.accuracy:.1%}" for one in result.tried)
        lines.append(f"right on validation nodes: {reached}; kept: {trained.backbone}")
    return lines


def _figures(result: Fitting) -> dict[str, Any]:
    """How the model came about."""
    history = result.trained.history
    return {
        "scaling": result.detector.scaling and str(result.detector.scaling),
        "backbone": result.trained.backbone,
        "tried": {one.backbone: one.accuracy for one in result.tried},
        "objective": repr(result.objective),
        "epochs": len(history.loss),
        "best_epoch": history.best_epoch + 1,
        "warnings": [str(warning) for warning in result.warnings],
    }


def calibrated_figures(result: Calibrated) -> dict[str, Any]:
    """How often the model is right, what it was calibrated on, and whether its error rates hold."""
    return {
        "method": repr(result.detector.method),
        "rates": {part: asdict(rate) for part, rate in result.rates.items()},
        "calibrated_on": result.calibrated_on.removesuffix("_mask"),
        "calibration_nodes": int(result.data[result.calibrated_on].sum()),
        "check": result.check and result.check.to_dict(),
    }


def calibrated_lines(result: Calibrated) -> list[str]:
    """The same in words."""
    lines = [
        f"right on {rate.accuracy:.1%} of {SPLIT[part]} nodes (balanced over classes {rate.balanced:.1%}; the largest "
        f"class alone {rate.majority:.1%})"
        for part, rate in result.rates.items()
    ]
    lines.append(
        f"{result.detector!r}, calibrated on {int(result.data[result.calibrated_on].sum()):,} "
        f"{SPLIT[result.calibrated_on.removesuffix('_mask')]} nodes"
    )
    if result.check is None:
        return [*lines, "no held-out test nodes: whether stated false-alarm rates hold was not checked"]
    return [*lines, *str(result.check).splitlines()]
