"""Several scores on one scale, how rare each is among held-out ID nodes, and what they say together.

E(s) = −log p(s), p the conformal p-value of a score among the calibration scores: 1 on average for an ID node, at most
log(n + 1). Evidence of two kinds, of a node's own (a) and its surroundings (b), makes one score, ΣE(a) + w ΣE(b), by a
weight that is read from the graph as a whole:

ρ = the largest share, over all own evidence, of the graph's nodes with neighbours that have E(a) > −log 0.1;
w = ½ + 1½ · sigmoid((ρ − 0.4) / 0.05).

In an ID graph ρ is about 0.1. Where a few nodes are odd, what their surroundings say counts little (w = ½); where half
of the graph is, it counts most (w = 2).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gnnsafe.calibration.p_values import conformal_p_values

__all__ = ["RARE", "rarity", "surroundings_weight"]

RARE = -math.log(0.1)
TOLERANCE = 1e-5
LEAST, MOST, MIDDLE, WIDTH = 0.5, 2.0, 0.4, 0.05


def rarity(scores: Tensor, calibration: Tensor) -> Tensor:
    """E(s) = −log((1 + #{calibration ≥ s}) / (n + 1)) of each score, float64.

    Scores count as equal where they differ by less than 1e-5 or by less than 1e-5 of themselves, so that the rounding
    of a forward, which depends on the order of the nodes, breaks no ties.

    >>> rarity(torch.tensor([0.0, 2.0, 9.0]), torch.tensor([1.0, 2.0, 3.0])).exp().tolist()
    [1.0, 1.3333..., 4.0...]
    """
    scores = scores.double()
    return -conformal_p_values(scores - TOLERANCE * (1 + scores.abs()), calibration.double()).log()


def surroundings_weight(evidence: Tensor) -> Tensor:
    """w of a graph from the own evidence E of its nodes with neighbours, [methods, nodes].

    >>> surroundings_weight(torch.tensor([[0.0, 9.0, 0.0, 9.0, 0.0], [0.0, 0.0, 0.0, 0.0, 9.0]])).item()
    1.25
    """
    share = (evidence > RARE).double().mean(dim=1).amax() if evidence.numel() else evidence.new_zeros(())
    return LEAST + (MOST - LEAST) * torch.sigmoid((share - MIDDLE) / WIDTH)
