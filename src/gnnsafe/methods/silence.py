"""Which nodes others are judged without: those whose own features are far off make all around them look unknown.

By the sums of squares and of fourth powers of `FeatureDistance` a node is of level

1, far off, where it is further off than 98 in 100 validation nodes by the first or 99 in 100 by the second. Some of a
   graph's own nodes are, so these are heard unless they are many: one in 200 more than in the graph that was fitted,
   and than chance puts there;
2, absurdly far off, where a sum is a hundred times as large as that. No node is heard whose features are so, however
   few there are: a single one changes what the model says of all within a few hops. Its own E, of features, is 500
   more where that sum is of squares: whatever else counts in a graph, it is not overlooked.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gnnsafe.errors import require

__all__ = ["ABSURD", "ALL_HEARD", "BEYOND", "FAR", "excess_of_far", "levels", "silent_from"]

FAR = (0.02, 0.01)  # the shares of validation nodes whose features are called far off by squares, by fourth powers
MANY = 0.005  # of all nodes, beyond the usual share and chance: with so many that are far off none of them is heard
ABSURD = 100.0  # times as far off as is called far
BEYOND = 500.0  # more of E, of which float64 still has the exponential
ROUNDING = 1e-4  # of a distance, relative to it
ALL_HEARD = 3  # a level that no node has


def levels(sums: Tensor, limits: Tensor) -> Tensor:
    """0, 1 or 2 for each node, by its sums, [nodes, 2], and the largest that are not far off, [2].

    >>> levels(torch.tensor([[1.0, 1.0], [3.0, 1.0], [3.0, 500.0]]), torch.tensor([2.0, 4.0])).tolist()
    [0, 1, 2]
    """
    require(limits.shape == (2,), "far_off_", "be of shape [2]", list(limits.shape), "fit again")
    limits = limits * (1 + ROUNDING)
    return (sums > limits).any(dim=1).long() + (sums > ABSURD * limits).any(dim=1).long()


def excess_of_far(share: Tensor, usual: Tensor, nodes: int) -> Tensor:
    """The share of nodes that are far off, beyond the usual one, where they are many among so many nodes; else 0."""
    expected = max(*FAR, float(usual))
    chance = 2 * math.sqrt(expected * (1 - expected) / nodes)  # two standard errors of such a share
    return torch.where(share - usual > MANY + chance, share - usual, 0.0)


def silent_from(excess: Tensor, absurd: Tensor) -> Tensor:
    """From which level on nodes are not heard, by that excess and the share of nodes that are absurdly far off."""
    return torch.where(excess > 0, 1, torch.where(absurd > 0, 2, ALL_HEARD))
