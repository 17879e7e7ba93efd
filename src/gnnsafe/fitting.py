"""A detector from a labelled graph alone: a split, a model, its training, a method and its calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gnnsafe.bench.paper import COMMON
from gnnsafe.calibration import CalibrationCheck
from gnnsafe.datasets.splits import large_split
from gnnsafe.detector import Detector
from gnnsafe.errors import require
from gnnsafe.graph import Data, changed, check_feature_names, check_graph, kept_names, node_labels
from gnnsafe.methods import own_method
from gnnsafe.metrics import accuracy
from gnnsafe.models import MODELS
from gnnsafe.training import OBJECTIVES, EnergyMargin, History, Objective, UncertainCrossEntropy, train

__all__ = ["HIDDEN", "OWN_OBJECTIVES", "Fitting", "fitting", "known_classes"]

HIDDEN = 64  # channels between layers, as in the paper's runs

# but for the one that only a model of its own can be trained by
OWN_OBJECTIVES = tuple(name for name, objective in OBJECTIVES.items() if objective is not UncertainCrossEntropy)


@dataclass(frozen=True, eq=False)
class Fitting:
    """A calibrated detector, and what was seen on the way to it."""

    detector: Detector
    data: Data
    """The graph, with the masks that were read or drawn, and classes numbered as the model does."""
    objective: Objective
    history: History
    accuracy: dict[str, float]
    """The share of right predictions on training, validation and test nodes."""
    calibrated_on: str
    """The mask of the calibration nodes."""
    check: CalibrationCheck | None
    """Whether stated false-alarm rates hold on the test nodes, where these are held out."""


def fitting(
    data: Data,
    *,
    exposure: Data | None = None,
    backbone: str = "gcn",
    objective: str | None = None,
    method: str = "gnnsafe",
    epochs: int = 200,
    seed: int = 0,
    each_epoch: Callable[[History], object] | None = None,
) -> Fitting:
    """Train a model of ours on the graph, bind a method to it, and calibrate it on the validation nodes.

    Without `train_mask` a split is drawn from the seed, 6 : 2 : 2. Every node of `exposure` is known to be OOD; with
    it the objective is the energy margin unless told, without it cross-entropy. A method that learns from validation
    nodes is calibrated on the test nodes.
    """
    data = known_classes(data, seed)
    minimised = _objective(objective, exposure)
    scorer = own_method(method)
    model = MODELS[backbone](data.x.shape[1], HIDDEN, len(data.class_names))
    if exposure is not None:
        check_feature_names(exposure, kept_names(data, "feature_names", data.x.shape[1]))
        exposure = changed(exposure, mask=torch.ones(exposure.x.shape[0], dtype=torch.bool))
    history = train(
        model, data, objective=minimised, exposure=exposure, epochs=epochs, seed=seed, each_epoch=each_epoch
    )
    calibrated_on = "test_mask" if scorer.learns_from_validation() else "val_mask"
    detector = Detector(model, scorer).fit(data).calibrate(data, mask=data[calibrated_on])
    right = _accuracies(detector, data)
    held_out = calibrated_on == "val_mask" and "test" in right
    check = detector.check_calibration(data, data.test_mask) if held_out else None
    return Fitting(detector, data, minimised, history, right, calibrated_on, check)


def _accuracies(detector: Detector, data: Data) -> dict[str, float]:
    logits = detector.outputs(data).logits
    parts = {name: data[f"{name}_mask"] for name in ("train", "val", "test") if f"{name}_mask" in data}
    return {name: accuracy(logits, data.y, part) for name, part in parts.items() if part.any()}


def known_classes(data: Data, seed: int) -> Data:
    """The graph with masks and with classes numbered 0, 1, …: those that training nodes have, `class_names` their own.

    A node of another class is OOD by its label: it loses it, and leaves the masks.
    """
    check_graph(data)
    y = node_labels(data)
    if "train_mask" not in data:
        data = large_split(changed(data), y >= 0, seed)
    labels = torch.unique(y[data.train_mask])
    require(len(labels) > 1, "label", "name at least two classes of training nodes", f"{len(labels)} of them")
    known = torch.isin(y, labels)
    names = getattr(data, "class_names", None)
    own = [label if names is None else names[label] for label in labels.tolist()]
    masks = {name: data[name] & known for name in ("train_mask", "val_mask", "test_mask") if name in data}
    return changed(data, y=torch.where(known, torch.searchsorted(labels, y), -1), class_names=own, **masks)


def _objective(name: str | None, exposure: Data | None) -> Objective:
    """The one of that name; margins in the middle of the paper's grids."""
    name = name or ("cross-entropy" if exposure is None else "energy-margin")
    kind = OBJECTIVES[name]
    require(
        exposure is None or kind.needs_exposure, "exposure", f"be left out for {name}, which does not read it", "one"
    )
    return EnergyMargin(*COMMON) if kind is EnergyMargin else kind()
