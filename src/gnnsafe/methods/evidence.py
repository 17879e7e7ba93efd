"""Several scores on one scale, how rare each is among held-out ID nodes, and what they say together about a graph.

E(s) = −log p(s), p the conformal p-value of a score among the calibration scores: 1 on average for an ID node, at most
log(n + 1). A score that depends on how many neighbours a node has is compared with those of calibration nodes that
have about as many, in groups of at least 100. Evidence is of two kinds, a node's own (a) and its surroundings' (b).
The graph as a whole says how much each counts, by the share of its nodes that are rare:

q = max(0, share of nodes with E > −log 0.1, less 0.1), for each evidence: 0 where it says nothing about this graph;
u = (0.02 + q) / (0.02 + the largest q of its kind), own ones scaled to Σ_a u_a² = how many there are;
w = ¼ + 1¾ · sigmoid((the largest own q − 0.3) / 0.05);

score = Σ_a u_a (E_a − Ē_a) + w · Σ_b (1 + u_b (E_b − Ē_b)), Ē the mean of E over the calibration nodes.

Ē is 1, or less where scores are tied: of one that is the same for all nothing is left, whatever the weights. So
evidence that finds nothing in a graph adds little noise to what another finds there (u), and what the surroundings
say counts little where a few nodes are odd (w = ¼) and most where half of the graph is (w = 2).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gnnsafe.calibration.p_values import conformal_p_values

__all__ = ["combined", "degree_bounds", "excess", "rarity", "rarity_by_degree", "surroundings_weight", "weights"]

RARE = 0.1  # a p-value below which a node is rare
TOLERANCE = 1e-5
GROUP = 100  # calibration nodes of about one degree, at least
FLOOR = 0.02  # what evidence without any excess counts for
LEAST, MOST, MIDDLE, WIDTH = 0.25, 2.0, 0.3, 0.05  # of what surroundings count for


def rarity(scores: Tensor, calibration: Tensor) -> Tensor:
    """E(s) = −log((1 + #{calibration ≥ s}) / (n + 1)) of each score, float64.

    Scores count as equal where they differ by less than 1e-5 or by less than 1e-5 of themselves, so that the rounding
    of a forward, which depends on the order of the nodes, breaks no ties.

    >>> rarity(torch.tensor([0.0, 2.0, 9.0]), torch.tensor([1.0, 2.0, 3.0])).exp().tolist()
    [1.0, 1.3333..., 4.0...]
    """
    scores = scores.double()
    return -conformal_p_values(scores - TOLERANCE * (1 + scores.abs()), calibration.double()).log()


def rarity_by_degree(scores: Tensor, degrees: Tensor, calibration: Tensor, known: Tensor) -> Tensor:
    """E(s) among the calibration scores of nodes with about the same degree; `known` are the calibration nodes'."""
    bounds = degree_bounds(known)
    group, others = torch.searchsorted(bounds, degrees.contiguous()), torch.searchsorted(bounds, known.contiguous())
    evidence = torch.zeros_like(scores, dtype=torch.float64)
    for number in range(len(bounds) + 1):
        evidence[group == number] = rarity(scores[group == number], calibration[others == number])
    return evidence


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


def excess(evidence: Tensor, counted: Tensor) -> Tensor:
    """q of each evidence: E [methods, nodes], and a mask of the nodes of which each says anything.

    >>> excess(torch.tensor([[0.0, 9.0, 9.0, 9.0]]), torch.tensor([[True, True, False, False]])).tolist()
    [0.4]
    """
    rare = ((evidence > -math.log(RARE)) & counted).sum(dim=1).double()
    return (rare / counted.sum(dim=1).clamp(min=1) - RARE).clamp(min=0)


def weights(excesses: Tensor) -> Tensor:
    """u of evidence of one kind, not scaled: 1 for what finds most in the graph.

    >>> weights(torch.tensor([0.08, 0.0])).tolist()
    [1.0, 0.2...]
    """
    return (FLOOR + excesses) / (FLOOR + excesses.amax())


def surroundings_weight(excesses: Tensor) -> Tensor:
    """w, by the q of own evidence.

    >>> surroundings_weight(torch.tensor([0.0, 0.3])).item()
    1.125
    """
    return LEAST + (MOST - LEAST) * torch.sigmoid((excesses.amax() - MIDDLE) / WIDTH)


def combined(own: Tensor, surroundings: Tensor, q_own: Tensor, q_surroundings: Tensor) -> Tensor:
    """The score of every node from its evidence of both kinds, E − Ē [methods, nodes], and their q."""
    u, v, w = weights(q_own), weights(q_surroundings), surroundings_weight(q_own)
    u = u * (len(u) / u.square().sum()).sqrt()
    return u @ own + w * (len(v) + v @ surroundings)
