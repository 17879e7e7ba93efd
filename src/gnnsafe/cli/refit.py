"""`gnnsafe refit`: another method on the model of a detector, without training it again."""

from __future__ import annotations

import argparse

from gnnsafe.cli.options import (
    GRAPH,
    add_graph_options,
    add_method_option,
    given_graph,
    output,
    path,
    place,
)
from gnnsafe.cli.output import Answer, progress_bar
from gnnsafe.cli.parsing import examples
from gnnsafe.cli.train import calibrated_figures, calibrated_lines, rate_notes
from gnnsafe.detector import Detector, load
from gnnsafe.errors import require
from gnnsafe.fitting import fit_and_calibrate
from gnnsafe.fitting.classes import renumbered
from gnnsafe.graph import Data, changed
from gnnsafe.methods import METHODS, Method
from gnnsafe.saving import FILE

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `refit`."""
    parser.description = (
        "Binds another OOD score to the model of a detector that 'gnnsafe train' has written, shows it the training "
        "nodes and calibrates it again; the model and the scaling of features stay as they are. The split is the one "
        "that the detector keeps where GRAPH is the graph that it was trained on, else the graph's own."
    )
    parser.epilog = examples("gnnsafe refit detector/ graph/ --method energy --out other/")
    parser.epilog += "'gnnsafe methods' explains the methods."
    parser.add_argument("detector", metavar="DETECTOR", type=place, help="the folder of a detector")
    parser.add_argument("graph", metavar="GRAPH", type=place, help=f"with labels: {GRAPH}")
    usual = (Method.objective, Method.model)  # others read a model made for them
    any_model = [name for name, method in METHODS.items() if (method.objective, method.model) == usual]
    add_method_option(parser, any_model)
    parser.add_argument("--out", metavar="FOLDER", type=path, required=True, help="where the detector is written")
    add_graph_options(parser)
    parser.set_defaults(command=_refit)


def _refit(arguments: argparse.Namespace) -> Answer:
    output(arguments, FILE)
    detector = load(arguments.detector)
    with progress_bar() as progress:
        task = progress.add_task(f"Reading {arguments.graph}", total=2)
        data = _split(detector, given_graph(arguments, undirected=detector.undirected))
        progress.update(task, description="Fitting", completed=1)
        require(detector.task == "multiclass", "DETECTOR", "have a multiclass model", detector.task)
        require(detector.classifier is not None, "DETECTOR", "have a model", "none")
        assert detector.classifier is not None
        undirected, model = detector.undirected or arguments.undirected, detector.classifier.model
        other = Detector(model, arguments.method, scaling=detector.scaling, undirected=undirected)
        result = fit_and_calibrate(other, data)
    result.detector.notes = {**detector.notes, **rate_notes(result)}
    result.detector.save(arguments.out)
    return Answer(calibrated_lines(result), calibrated_figures(result), [("Detector", arguments.out)])


def _split(detector: Detector, data: Data) -> Data:
    """The graph with the detector's classes and split."""
    require("y" in data, "label", "be given to fit a method", "a graph without labels", "add a column 'label'")
    assert detector.used_ is not None  # as it was saved
    masks = detector.used_.split(data)
    require("train_mask" in masks, "split", "be given for another graph than the one trained on", "none")
    data = changed(data, **masks)
    return data if detector.class_names_ is None else renumbered(data, detector.class_names_)
