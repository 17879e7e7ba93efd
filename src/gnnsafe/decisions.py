"""What a detector says about every node of a graph, from one forward of the model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.detector import Detector
from gnnsafe.graph import Graph
from gnnsafe.methods.base import scores_of
from gnnsafe.scores import max_softmax

__all__ = ["Decisions", "decisions"]


@dataclass(frozen=True, eq=False)
class Decisions:
    """One entry per node."""

    scores: Tensor
    p_values: Tensor
    flags: Tensor
    """True = OOD."""
    predicted: Tensor | None
    """The class; None where there is no model, or one with several labels per node."""
    probabilities: Tensor | None
    """Of the predicted class."""


def decisions(
    detector: Detector, data: Graph, *, false_alarm: float | None = None, fdr: float | None = None
) -> Decisions:
    """Predictions, scores, p-values and flags of a calibrated detector; `Detector.predict` says what they promise."""
    calibration, outputs = detector.calibrated(), detector.outputs(data)
    scores = scores_of(detector.method, outputs)
    classified = detector.classifier is not None and detector.task == "multiclass"
    predicted = outputs.logits.argmax(dim=1) if classified else None
    p = calibration.p_values(scores, None if calibration.classes is None else predicted)
    flags = calibration.decisions(p, false_alarm=false_alarm, fdr=fdr)
    return Decisions(scores, p, flags, predicted, -max_softmax(outputs.logits) if classified else None)
