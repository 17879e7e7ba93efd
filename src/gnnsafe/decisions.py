"""What a detector says about every node of a graph, from one forward of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gnnsafe.calibration import Tail
from gnnsafe.detector import Detector
from gnnsafe.graph import Graph
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

    def of(self, mask: Tensor) -> Decisions:
        """Those about the nodes in `mask`."""
        each: dict[str, Any] = {name: None if value is None else value[mask] for name, value in vars(self).items()}
        return Decisions(**each)


def decisions(
    detector: Detector,
    data: Graph,
    *,
    false_alarm: float | None = None,
    fdr: float | None = None,
    mask: Tensor | None = None,
    seed: int | None = None,
    tail: Tail = "exact",
    storey: bool = False,
) -> Decisions:
    """Predictions, scores, p-values and flags of a calibrated detector; `Detector.predict` says what they promise."""
    calibration, outputs = detector.calibrated(), detector.outputs(data)
    scores = detector.method.score(outputs)
    classified = detector.classifier is not None and detector.task == "multiclass"
    predicted = outputs.logits.argmax(dim=1) if classified else None
    p = calibration.p_values(scores, None if calibration.classes is None else predicted, seed=seed, tail=tail)
    flags = calibration.decisions(p, false_alarm=false_alarm, fdr=fdr, mask=mask, storey=storey)
    return Decisions(scores, p, flags, predicted, -max_softmax(outputs.logits) if classified else None)
