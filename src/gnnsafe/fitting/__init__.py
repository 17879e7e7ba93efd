"""A detector from a labelled graph alone: split, scaling, model, training, method, calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import torch

from gnnsafe.bench.paper import COMMON
from gnnsafe.calibration import CalibrationCheck
from gnnsafe.detector import Detector
from gnnsafe.devices import chosen_device
from gnnsafe.errors import GnnsafeWarning, require, require_known
from gnnsafe.fitting.advice import advise
from gnnsafe.fitting.backbones import AUTO, Trained, TrainingSetup, best
from gnnsafe.fitting.classes import known_classes
from gnnsafe.graph import Data, changed, check_feature_names, kept_names, moved
from gnnsafe.held_out import MASKS
from gnnsafe.methods import Method, own_method
from gnnsafe.metrics import accuracy, balanced_accuracy, majority_rate
from gnnsafe.prepared import admit
from gnnsafe.scaling import FeatureScaling, Scale
from gnnsafe.training import OBJECTIVES, EnergyMargin, History, Objective

__all__ = ["AUTO", "Calibrated", "Fitting", "Rates", "fit_and_calibrate", "fit_detector", "known_classes"]


@dataclass(frozen=True)
class Rates:
    """How often predictions are right on some nodes, beside what says how much that is worth."""

    accuracy: float
    balanced: float
    """The mean over classes of the share of their nodes that is right: 1 / classes for a model that learnt nothing."""
    majority: float
    """The share of the class that most training nodes have: what a constant prediction reaches."""


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A calibrated detector, how often its model is right, and whether its error rates hold."""

    detector: Detector
    data: Data
    """The graph, with the masks that were read or drawn, and classes numbered as the model does."""
    rates: dict[str, Rates]
    """On training, validation and test nodes, as far as there are any."""
    calibrated_on: str
    """The mask of the calibration nodes."""
    check: CalibrationCheck | None
    """Whether stated false-alarm rates hold on the test nodes, where these are held out."""


@dataclass(frozen=True, eq=False)
class Fitting(Calibrated):
    """A calibrated detector, and what was seen on the way to it."""

    objective: Objective
    trained: Trained
    tried: tuple[Trained, ...]
    """Every backbone that was trained, in order."""
    warnings: tuple[GnnsafeWarning, ...]
    """What speaks against relying on this detector, each with its remedy."""


def fit_detector(
    data: Data,
    *,
    exposure: Data | None = None,
    backbone: str | None = None,
    objective: str | None = None,
    method: str | None = None,
    epochs: int = 200,
    seed: int = 0,
    scale: Scale = "auto",
    by_time: bool = False,
    undirected: bool = False,
    device: torch.device | str = "cpu",
    begin: Callable[[str], object] | None = None,
    each_epoch: Callable[[History], object] | None = None,
) -> Fitting:
    """Train a model of gnnsafe.models on the graph, bind a method to it, and calibrate it on the validation nodes.

    Without `train_mask` a split is drawn from the seed, 6 : 2 : 2. A method that learns from validation nodes, and
    keeps no scores of theirs as if it had not, is calibrated on the test nodes.

    Args:
        data: The graph, with labels `y`.
        exposure: A graph whose every node is known to be OOD.
        backbone: A name in `MODELS`, or "auto": the one of `AUTO` that is right on most validation nodes. By default
            the method's own model, or the GCN.
        objective: A name in `OBJECTIVES`; by default the energy margin with `exposure`, else the method's.
        method: The OOD score, a name in `METHODS`; by default that of a `Detector`, and with `exposure` "gnnsafe",
            which with the energy margin is the paper's GNNSafe++.
        epochs: Of training.
        seed: Of the weights and the split.
        scale: How features are scaled, see `FeatureScaling.fit`.
        by_time: Split by `data.timestamp`: the oldest nodes train, the latest test.
        undirected: Read each edge in both directions, here and in every graph that the detector is given later.
        device: Where to train and to calibrate: "cpu", "cuda", "auto" (CUDA's where there is a GPU).
        begin: Called with a backbone's name before it is trained.
        each_epoch: Called after every epoch of any training.

    Returns:
        The detector and what was seen on the way. Its `warnings` are for the caller to show.
    """
    place = chosen_device(device)
    data = admit(data).both_ways().data if undirected else data
    data = moved(known_classes(data, seed, by_time=by_time), place)
    _require_apart(data)
    method = "gnnsafe" if method is None and exposure is not None else method
    scorer = own_method(method)
    backbone = _required("backbone", backbone, scorer.model, method) or "gcn"
    minimised = _objective(objective, exposure, scorer, method)
    scaling = FeatureScaling.fit(data.x, data.train_mask, scale)
    if exposure is not None:
        check_feature_names(exposure, kept_names(data, "feature_names", data.x.shape[1]))
        exposure = admit(exposure).both_ways().data if undirected else exposure
        exposure = _scaled(moved(exposure, place), scaling)
        exposure = changed(exposure, mask=torch.ones(exposure.x.shape[0], dtype=torch.bool, device=place))
    setup = TrainingSetup(_scaled(data, scaling), exposure, minimised, epochs, seed, begin, each_epoch)
    tried = [setup(name) for name in (AUTO if backbone == "auto" else (backbone,))]
    trained = best(tried)
    result = fit_and_calibrate(Detector(trained.model, method, scaling=scaling, undirected=undirected), data)
    rivals, warnings = advise(trained, tried, result.data, result.detector, result.calibrated_on, setup)
    return Fitting(
        **vars(result), objective=minimised, trained=trained, tried=(*tried, *rivals), warnings=tuple(warnings)
    )


def fit_and_calibrate(detector: Detector, data: Data) -> Calibrated:
    """Fit the detector on a graph with masks, calibrate it, and check it on test nodes that are held out."""
    _require_nodes(data, "val_mask", detector)
    learnt = detector.fit(data).method.learns_from_validation() and detector.method.known_scores() is None
    calibrated_on = "test_mask" if learnt else "val_mask"
    _require_nodes(data, calibrated_on, detector)
    detector.calibrate(data, mask=data[calibrated_on])
    logits = detector.outputs(data).logits
    parts = {name: data[f"{name}_mask"] for name in ("train", "val", "test") if f"{name}_mask" in data}
    rates = {
        name: Rates(accuracy(logits, data.y, part), balanced_accuracy(logits, data.y, part),
                    majority_rate(data.y, data.train_mask, part))
        for name, part in parts.items() if part.any()
    }  # fmt: skip
    held_out = calibrated_on == "val_mask" and "test" in rates
    check = detector.check_calibration(data, data.test_mask) if held_out else None
    return Calibrated(detector, data, rates, calibrated_on, check)


def _require_nodes(data: Data, name: str, detector: Detector) -> None:
    require(
        name in data and bool(data[name].any()), name, f"hold nodes to fit or calibrate {detector.method!r} with",
        "none", "give such nodes, or choose another method",
    )  # fmt: skip


def _require_apart(data: Data) -> None:
    """No node is in two masks: calibration and its check would refuse it, after all the training."""
    for one, other in combinations([name for name in MASKS if name in data], 2):
        shared = int((data[one] & data[other]).sum())
        require(shared == 0, other, f"share no node with {one}", f"{shared} in both", "give each node one part")


def _scaled(data: Data, scaling: FeatureScaling | None) -> Data:
    return data if scaling is None else changed(data, x=scaling(data.x))


def _required(argument: str, given: str | None, own: str | None, method: str | None) -> str | None:
    """What is given; where the method asks for one, that one and no other."""
    require(None in (own, given) or given == own, argument, f"be {own} for {method}", given, "leave it out")
    return own or given


def _objective(name: str | None, exposure: Data | None, scorer: Method, method: str | None) -> Objective:
    """The one of that name, or the one that the method asks for; margins in the middle of the paper's grids."""
    own = None if scorer.objective == Method.objective else scorer.objective
    name = _required("objective", name, own, method) or (Method.objective if exposure is None else "energy-margin")
    require_known("objective", name, OBJECTIVES)
    kind = OBJECTIVES[name]
    require(
        exposure is None or kind.needs_exposure, "exposure", f"be left out for {name}, which does not read it", "one"
    )
    return EnergyMargin(*COMMON) if kind is EnergyMargin else kind()
