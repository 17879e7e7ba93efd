"""How accurate the classifier is on nodes whose labels are unknown: the average calibrated confidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.calibration import Calibration

__all__ = ["AccuracyEstimate", "estimated_accuracy"]

GROUPS = 10
LEAST = 20  # calibration nodes in a group


@dataclass(frozen=True)
class AccuracyEstimate:
    """The estimated share of right predictions, and its standard error from the number of calibration nodes alone."""

    value: float
    error: float
    nodes: int
    """Those not flagged, over which it is the average."""


def estimated_accuracy(
    calibration: Calibration, probabilities: Tensor | None, flags: Tensor
) -> AccuracyEstimate | None:
    """Σ_g share_g · accuracy_g over groups g of like confidence, of the nodes that are not flagged.

    Calibration nodes of known class are put in up to ten groups of equal size by the probability of their predicted
    class; a node is taken to be right as often as the calibration nodes of its group were. That is what confidence is
    worth on ID nodes: of flagged nodes it says nothing, so these are left out. Where confidence itself has become worth
    less, as on nodes with shifted neighbours, the estimate is too high; docs/monitor.md says by how much it was.

    Returns:
        None where there are no classes, no calibration nodes of known class, or none but flagged nodes.
    """
    known = calibration.known
    kept = None if probabilities is None else probabilities[~flags].double().cpu()
    if known is None or known.probabilities is None or kept is None or len(kept) == 0:
        return None
    labelled = known.labels >= 0
    confidence, right = known.probabilities[labelled].double(), (known.margins[labelled] == 0).double()
    bounds = _bounds(confidence)
    own, kept_in = torch.searchsorted(bounds, confidence), torch.searchsorted(bounds, kept)
    sizes, shares = (torch.bincount(each, minlength=len(bounds) + 1).double() for each in (own, kept_in))
    accuracy = torch.bincount(own, weights=right, minlength=len(bounds) + 1) / sizes
    shares = shares / len(kept)
    error = math.sqrt(float((shares.square() * accuracy * (1 - accuracy) / sizes).sum().clamp(min=0)))
    return AccuracyEstimate(float((shares * accuracy).sum()), error, len(kept))


def _bounds(confidence: Tensor) -> Tensor:
    """The highest confidence of each group but the last; equal ones are in one group, and no group is empty."""
    ordered = confidence.sort().values
    groups = min(GROUPS, max(1, len(ordered) // LEAST))
    ends = torch.stack([part[-1] for part in ordered.tensor_split(groups)])
    return ends[:-1][ends[:-1] < ends[1:]]
