"""What a run's scores look like beyond its metrics, small enough to keep: ROC, accuracy of nodes kept, histogram."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnsafe.errors import require
from gnnsafe.metrics import threshold

__all__ = ["KEPT", "ROC", "Curves"]

ROC = np.linspace(0, 1, 51)
"""Shares of OOD nodes accepted at which a ROC curve is known."""
KEPT = np.linspace(0.05, 1, 20)
"""Shares of ID nodes kept, those with the lowest scores, at which their accuracy is known."""
BINS = 60
DIGITS = 4


@dataclass(frozen=True)
class Curves:
    """Curves of one method's scores of ID and OOD nodes."""

    roc: list[float]
    """Share of ID nodes accepted where `ROC` of the OOD nodes are."""
    accuracy: list[float]
    """Accuracy of the classifier on the ID nodes kept, `KEPT` of them."""
    id_shares: list[float]
    """Histogram: shares of ID nodes in equal bins over `span`, the outermost with what lies beyond."""
    ood_shares: list[float]
    span: list[float]
    threshold: float
    """Accepts 95 % of ID nodes."""

    def __post_init__(self) -> None:
        sizes = {"roc": len(ROC), "accuracy": len(KEPT), "id_shares": BINS, "ood_shares": BINS, "span": 2}
        for name, size in sizes.items():
            require(len(getattr(self, name)) == size, name, f"have {size} values", len(getattr(self, name)))
        require(self.span[0] < self.span[1], "span", "be from less to more", self.span)

    @classmethod
    def of(cls, id_scores: NDArray[np.float32], ood_scores: NDArray[np.float32], right: NDArray[np.bool_]) -> Curves:
        """Of the scores of ID nodes, of OOD nodes, and whether each ID node's prediction is right."""
        low, high = np.quantile(np.concatenate([id_scores, ood_scores]), [0.005, 0.995])
        span = [float(low), float(max(high, low + 1e-6 * max(1, abs(low))))]  # of equal scores, too
        return cls(
            _rounded(_roc(id_scores, ood_scores)),
            _rounded(_kept_accuracy(id_scores, right)),
            _rounded(_histogram(id_scores, span)),
            _rounded(_histogram(ood_scores, span)),
            span,
            threshold(id_scores),
        )


def _roc(id_scores: NDArray[np.float32], ood_scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Straight between the points of all thresholds, as the area under it is counted."""
    values = np.unique(np.concatenate([id_scores, ood_scores]))
    inside, outside = (
        np.append(0, np.searchsorted(np.sort(scores), values, "right") / len(scores))
        for scores in (id_scores, ood_scores)
    )
    return np.asarray(np.interp(ROC, outside, inside))  # at the top of a vertical stretch


def _kept_accuracy(scores: NDArray[np.float32], right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Of all nodes with at most the threshold's score: ties are kept together."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    counts = np.ceil(np.round(KEPT * len(scores), 9)).astype(int)
    counts = np.searchsorted(ordered, ordered[counts - 1], "right")
    return np.asarray(np.cumsum(right[order])[counts - 1] / counts)


def _histogram(scores: NDArray[np.float32], span: list[float]) -> NDArray[np.float64]:
    counts = np.histogram(np.clip(scores.astype(np.float64), span[0], span[1]), BINS, range=(span[0], span[1]))[0]
    return np.asarray(counts / len(scores))


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [float(value) for value in np.round(values, DIGITS)]
