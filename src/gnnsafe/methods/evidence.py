"""Several scores on one scale: how rare each is among held-out ID nodes.

E(s) = −log p(s), p the conformal p-value of a score among the calibration scores: 1 on average for an ID node, at most
log(n + 1). A score that depends on how many neighbours a node has is compared with those of calibration nodes that
have about as many, in groups of at least 100. `gnnsafe.methods.weighing` says what several of them say together.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["GROUP", "Compared", "continued_rarity", "degree_bounds", "rarity"]

TOLERANCE = 1e-5
GROUP = 100  # calibration nodes of about one degree, at least
TAIL = 10  # the top tenth says how a tail goes on


def rarity(scores: Tensor, calibration: Tensor, *, among: bool = False) -> Tensor:
    """E(s) = −log((1 + #{calibration ≥ s}) / (n + 1)) of each score, float64.

    Scores count as equal where they differ by less than 1e-5 or by less than 1e-5 of themselves, so that the rounding
    of a forward, which depends on the order of the nodes, breaks no ties. With `among` the scores are the calibration
    scores themselves, and each is compared with the others: −log(#{calibration ≥ s} / n).

    >>> rarity(torch.tensor([0.0, 2.0, 9.0]), torch.tensor([1.0, 2.0, 3.0])).exp().tolist()
    [1.0, 1.3333..., 4.0...]
    >>> rarity(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 4.0]), among=True).exp().tolist()
    [1.0, 2.0]
    """
    return Compared.with_all(calibration).rarity(
        scores, torch.zeros_like(scores, dtype=calibration.dtype), calibration, among=among
    )


class Compared(NamedTuple):
    """Which nodes are compared: nodes with the calibration nodes of their group, by their degree."""

    bounds: Tensor
    """The largest degree of each group but the last."""
    groups: Tensor
    """Of the calibration nodes."""
    counts: Tensor
    """How many calibration nodes a group has."""

    @classmethod
    def by(cls, known: Tensor) -> Compared:
        """In groups by the degrees of the calibration nodes, `known`."""
        bounds = degree_bounds(known)
        groups = torch.searchsorted(bounds, known.contiguous())
        return cls(bounds, groups, torch.bincount(groups, minlength=len(bounds) + 1))

    @classmethod
    def with_all(cls, calibration: Tensor) -> Compared:
        """In one group."""
        groups = torch.zeros(len(calibration), dtype=torch.int64, device=calibration.device)
        return cls(calibration.new_zeros(0), groups, torch.bincount(groups, minlength=1))

    def rarity(self, scores: Tensor, degrees: Tensor, calibration: Tensor, *, among: bool = False) -> Tensor:
        """E(s) among the calibration scores of nodes with about the same degree: one search for all groups.

        Scores and calibration scores are one number per node, or a row of them, by each of several parts. A score's
        place among all calibration scores tells as much as the score itself which of them are at least as high; a
        group has a stretch of whole numbers for these places.
        """
        asked, known = (each.double().movedim(0, -1).contiguous() for each in (scores, calibration))
        ordered, stretch = known.sort().values, known.shape[-1] + 1
        place = torch.searchsorted(ordered, asked - TOLERANCE * (1 + asked.abs()))
        group = torch.searchsorted(self.bounds, degrees.contiguous())
        keys = (self.groups * stretch + torch.searchsorted(ordered, known)).sort().values
        at_least = (self.counts.cumsum(0)[group] - torch.searchsorted(keys, group * stretch + place)).double()
        count = self.counts[group]
        return -(at_least / count if among else (1 + at_least) / (count + 1)).log().movedim(-1, 0)


def degree_bounds(degrees: Tensor, group: int = GROUP) -> Tensor:
    """The largest degree of each group but the last, the groups as small as `group` nodes allow.

    >>> degree_bounds(torch.tensor([0, 0, 0, 1, 2, 5, 9]), group=2).tolist()
    [0, 2]
    """
    values, counts = torch.unique(degrees, return_counts=True)
    bounds, size, left = [], 0, len(degrees)
    for value, count in zip(values, counts.tolist(), strict=True):
        size, left = size + count, left - count
        if size >= group <= left:
            bounds.append(value)
            size = 0
    return torch.stack(bounds) if bounds else values[:0]


def continued_rarity(values: Tensor, reference: Tensor) -> Tensor:
    """−log p among the reference values, p = 1 / (n + 1) for the highest: linear between them, and on beyond them.

    Higher values are never less rare, and beyond all they go on as the top tenth does: by 1 with each mean excess.

    >>> continued_rarity(torch.tensor([1.0, 1.5, 2.0]), torch.tensor([2.0, 1.0])).exp().tolist()
    [1.5, 2.1213..., 3.0...]
    """
    ordered, values, count = reference.double().sort().values, values.double(), len(reference)
    heights = -((count - torch.arange(count, device=ordered.device)).double() / (count + 1)).log()
    top = ordered[-max(1, count // TAIL) :]
    spread = (top - top[0]).mean()
    spread = torch.where(spread > 0, spread, 1.0)
    place = torch.searchsorted(ordered, values.contiguous()).clamp(max=count - 1)
    before = (place - 1).clamp(min=0)
    low, high = ordered[before], ordered[place]
    share = torch.where(high > low, (values - low) / torch.where(high > low, high - low, 1.0), 1.0).clamp(0, 1)
    inside = torch.lerp(heights[before], heights[place], share)
    return inside + (values - ordered[-1]).clamp(min=0) / spread + (values - ordered[0]).clamp(max=0) / spread
