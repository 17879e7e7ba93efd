"""Several scores on one scale, how rare each is among held-out ID nodes, and what they say together about a graph.

E(s) = −log p(s), p the conformal p-value of a score among the calibration scores: 1 on average for an ID node, at most
log(n + 1). A score that depends on how many neighbours a node has is compared with those of calibration nodes that
have about as many, in groups of at least 100. Evidence is of three kinds: the node is unlike its neighbours, it is
unknown to the model, its surroundings are odd. The graph as a whole says how much each counts, by the share of its
nodes that are rare:

q = max(0, share of nodes with E > −log 0.1, less 0.1), for each evidence: 0 where it says nothing about this graph;
r = q, but of evidence that the node is unknown max(0, q − q_x), q_x that of features unlike the neighbours': OOD nodes
    among ID nodes make those around them look unknown, too;
u = (0.02 + r) / (0.02 + the largest r of its kind), own ones, of the first two kinds, scaled to Σ u² = their number;
o = sigmoid((the largest q of the first kind − 0.48) / 0.03), or, where that is more, of the second kind
    sigmoid((the largest q − 4 q_x − 0.25) / 0.05): how far the graph as a whole is odd, 0 to 1;
w = ¼ + 1¾ o;

z = Σ_own u (E − Ē) + w Σ_surroundings u (E − Ē), Ē the mean of E over the calibration nodes;
score = −log p(z) + 4 o, p among the calibration nodes' z by the same weights, continued beyond them;
p-values compare −log p(z − δ), δ = (1 − o) · max(0, median of z in the graph − that of the calibration nodes).

So evidence that finds nothing in a graph adds little noise to what another finds there (u); what the surroundings say
counts little where a few nodes are odd (w = ¼) and most where the graph is (w = 2), which also lifts all its nodes by
4 o. p-values say how a node stands among ID nodes under the same weights: they are without that lift, and where OOD
nodes stand among ID nodes, and lift them all a little, without what the graph's own median says that is (δ).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Compared", "Weights", "continued_rarity", "degree_bounds", "excess", "rarity", "surroundings_weight"]

RARE = 0.1  # a p-value below which a node is rare
TOLERANCE = 1e-5
GROUP = 100  # calibration nodes of about one degree, at least
FLOOR = 0.02  # what evidence without any excess counts for
LEAST, MOST = 0.25, 2.0  # what surroundings count for
UNLIKE, UNKNOWN = (0.48, 0.03), (0.25, 0.05)  # the excess at which a graph is half odd, and the width of that step
EXPLAINED = 4  # times the excess of unlike features: so much of unknown nodes may be due to those among ID nodes
TAIL = 10  # the top tenth says how a tail goes on


def rarity(scores: Tensor, calibration: Tensor, *, among: bool = False) -> Tensor:
    """E(s) = −log((1 + #{calibration ≥ s}) / (n + 1)) of each score, float64.

    Scores count as equal where they differ by less than 1e-5 or by less than 1e-5 of themselves, so that the rounding
    of a forward, which depends on the order of the nodes, breaks no ties. With `among` the scores are the calibration
    scores themselves, and each is held against the others: −log(#{calibration ≥ s} / n).

    >>> rarity(torch.tensor([0.0, 2.0, 9.0]), torch.tensor([1.0, 2.0, 3.0])).exp().tolist()
    [1.0, 1.3333..., 4.0...]
    >>> rarity(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 4.0]), among=True).exp().tolist()
    [1.0, 2.0]
    """
    return Compared.with_all(calibration).rarity(
        scores, torch.zeros_like(scores, dtype=calibration.dtype), calibration, among=among
    )


class Compared(NamedTuple):
    """Who is compared with whom: nodes with the calibration nodes of their group, by their degree."""

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

        A score's place among all calibration scores tells as much as the score itself which of them are at least as
        high; a group has a stretch of whole numbers for these places.
        """
        asked, known = scores.double(), calibration.double()
        ordered, stretch = known.sort().values, len(known) + 1
        place = torch.searchsorted(ordered, asked - TOLERANCE * (1 + asked.abs()))
        group = torch.searchsorted(self.bounds, degrees.contiguous())
        keys = (self.groups * stretch + torch.searchsorted(ordered, known)).sort().values
        at_least = (self.counts.cumsum(0)[group] - torch.searchsorted(keys, group * stretch + place)).double()
        count = self.counts[group]
        return -(at_least / count if among else (1 + at_least) / (count + 1)).log()


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


def excess(evidence: Tensor) -> Tensor:
    """q of each evidence: E [nodes, parts], NaN where it says nothing.

    >>> excess(torch.tensor([[0.0], [9.0], [torch.nan], [torch.nan]])).tolist()
    [0.4]
    """
    rare = (evidence > -math.log(RARE)).sum(dim=0).double()
    return (rare / (~evidence.isnan()).sum(dim=0).clamp(min=1) - RARE).clamp(min=0)


class Weights(NamedTuple):
    """What a graph as a whole says: how much each evidence counts in it, and how odd it is."""

    each: Tensor
    """u of own evidence and w u of the surroundings', [parts]."""
    openness: Tensor
    """o, 0 to 1."""

    @classmethod
    def of(cls, q: Tensor, unlike: int, unknown: int, features: Tensor) -> Weights:
        """By the q of each evidence, of which so many are of the first and of the second kind, then surroundings.

        `features` is a mask of those that say that features are unlike the neighbours'.
        """
        own, explained = unlike + unknown, q[features].sum()
        r = q.clone()
        r[unlike:own] = (q[unlike:own] - explained).clamp(min=0)
        u, v = _relative(r[:own]), _relative(q[own:])
        odd = [_step(q[:unlike], *UNLIKE), _step(q[unlike:own] - EXPLAINED * explained, *UNKNOWN)]
        openness = torch.stack(odd).amax()
        u = u * (len(u) / u.square().sum()).sqrt()
        return cls(torch.cat([u, surroundings_weight(openness) * v]), openness)


def surroundings_weight(openness: Tensor) -> Tensor:
    """w = ¼ + 1¾ o."""
    return LEAST + (MOST - LEAST) * openness


def _relative(excesses: Tensor) -> Tensor:
    return (FLOOR + excesses) / (FLOOR + excesses.amax()) if len(excesses) else excesses


def _step(excesses: Tensor, middle: float, width: float) -> Tensor:
    largest = excesses.amax() if len(excesses) else excesses.sum()
    return torch.sigmoid((largest - middle) / width)


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
