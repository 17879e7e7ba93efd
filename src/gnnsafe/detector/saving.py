"""A detector into a folder."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from gnnsafe.detector.scoring import Scorer
from gnnsafe.errors import NotFittedError
from gnnsafe.saving import Saved, SavedModel, write

__all__ = ["save"]


def save(detector: Scorer, folder: Path) -> None:
    """Write all that was fitted and calibrated; see `gnnsafe.saving`."""
    if detector.num_features_ is None or detector.used_ is None:
        raise NotFittedError(f"{detector!r} is not fitted; call fit(data) before it is saved")
    detector.check_weights()
    tensors: dict[str, Tensor] = {}
    classifier = detector.classifier
    saved = Saved(
        task=detector.task,
        num_features=detector.num_features_,
        feature_names=detector.feature_names_,
        class_names=detector.class_names_,
        notes=detector.notes,
        method=detector.method,
        model=None if classifier is None else SavedModel.of(classifier.model, tensors),
        embedding=None if classifier is None else classifier.embedding,
        forward=detector.forward is not None,
        node_type=detector.node_type,
        edge_types=None if detector.edge_types is None else tuple(detector.edge_types),
        scaling=detector.scaling,
        undirected=detector.undirected,
        classes=detector.classes_,
        calibration=None if detector.calibration_ is None else detector.calibrated(),
        passed=detector.passed_,
        used=detector.used_,
    )
    write(folder, saved, tensors)
