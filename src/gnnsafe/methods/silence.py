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

import copy
import math
from typing import Self

import torch
from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.hetero import NodeTypeGraph
from gnnsafe.methods.base import Method
from gnnsafe.methods.feature_distance import FeatureDistance
from gnnsafe.methods.rows import quantiles
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph

__all__ = ["BEYOND", "Hearing", "absurd", "levels"]

FAR = (0.02, 0.01)  # the shares of validation nodes whose features are called far off by squares, by fourth powers
MANY = 0.005  # of all nodes, beyond the usual share and chance: with so many that are far off none of them is heard
ABSURD = 100.0  # times as far off as is called far
BEYOND = 500.0  # more of E, of which float64 still has the exponential
ROUNDING = 1e-4  # of a distance, relative to it
NOTHING = 1e-5  # a sum of which rounding may be all: where validation nodes have the same features, none is off by less
ALL_HEARD = 3  # a level that no node has


def levels(sums: Tensor, limits: Tensor) -> Tensor:
    """0, 1 or 2 for each node, by its sums, [nodes, 2], and the largest that are not far off, [2].

    >>> levels(torch.tensor([[1.0, 1.0], [3.0, 1.0], [3.0, 500.0]]), torch.tensor([2.0, 4.0])).tolist()
    [0, 1, 2]
    """
    require(limits.shape == (2,), "far_off_", "be of shape [2]", list(limits.shape), "fit again")
    return (sums > _rounded(limits)).any(dim=1).long() + absurd(sums, limits).any(dim=1).long()


def absurd(sums: Tensor, limits: Tensor) -> Tensor:
    """Whether each sum is absurdly large, by the largest that are not far off.

    >>> absurd(torch.tensor([200.0, 201.0]), torch.tensor(2.0)).tolist()
    [False, True]
    """
    return sums > ABSURD * _rounded(limits)


def _rounded(limits: Tensor) -> Tensor:
    return (limits * (1 + ROUNDING)).clamp(min=NOTHING)


def _sums_and_limits(distance: FeatureDistance, graph: PreparedGraph, held_out: Tensor) -> tuple[Tensor, Tensor]:
    """All nodes' sums, and those that 98 and 99 in 100 held-out nodes do not exceed."""
    sums = distance.of_graph(graph)
    return sums, quantiles(sums[held_out], [1 - share for share in FAR]).diagonal().clone()


def _few(some: Tensor, of: Tensor) -> bool:
    """Whether so few of the nodes in a mask are among some that the others can do without them."""
    return 0 < int(some.sum()) <= max(1, FAR[0] * int(of.sum())) < int(of.sum())


def _excess(share: Tensor, usual: Tensor, nodes: int) -> Tensor:
    """The share of nodes that are far off, beyond the usual one, where they are many among so many nodes; else 0."""
    expected = max(*FAR, float(usual))
    chance = 2 * math.sqrt(expected * (1 - expected) / nodes)  # two standard errors of such a share
    return torch.where(share - usual > MANY + chance, share - usual, 0.0)


class Hearing(Method):
    """A method that leaves out the messages of such nodes; its class has these as `fitted` fields."""

    far_off_: Tensor
    """How far the features of 98 in 100 validation nodes are off, at most, by squares, and of 99 by fourth powers.

    Infinite where none is asked.
    """
    validated_: Tensor
    """How many validation nodes these are."""
    usual_far_: Tensor
    """The share of nodes that are further off, in the graph that was fitted."""
    silencing_: Tensor
    """The share of nodes that are further off, beyond the usual one, where they are many in the graph that was seen
    last, so that none of them is heard; else 0."""
    silent_from_: Tensor
    """From which level on nodes are not heard in that graph: 1, far off; 2, absurdly far off; 3: all are heard."""

    @property
    def distance(self) -> FeatureDistance | None:
        """The part that says how far off a node's own features are; None where all are heard."""
        return None

    def learn_far(self, outputs: Outputs, y: Tensor, mask: Tensor, held_out: Tensor) -> Tensor:
        """What is usual, of the graph that is fitted and of its validation nodes, a mask; and whom to hear in it.

        Returns:
            The training nodes to learn from: all in the mask but, where they are few, those that are absurdly far off
            beside the validation nodes. They would be the measure of what is far.
        """
        graph = outputs.graph
        self.far_off_ = torch.full((2,), torch.inf, device=graph.device)
        self.validated_ = held_out.sum()
        if self.distance is not None:
            odd = mask & absurd(*_sums_and_limits(FeatureDistance().fit(outputs, y, held_out), graph, held_out))[:, 0]
            mask = mask & ~odd if _few(odd, mask) else mask
            self.far_off_ = _sums_and_limits(self.distance.fit(outputs, y, mask), graph, held_out)[1]
        found = self.levels(graph)
        self.usual_far_ = (found > 0).double().mean()
        self.silencing_ = torch.zeros_like(self.usual_far_)
        self.silent_from_ = torch.where((found > 1).any(), 2, ALL_HEARD)
        return mask

    def levels(self, graph: PreparedGraph) -> Tensor:
        """How far off each node's features are: 0, 1 or 2."""
        if self.distance is None or isinstance(graph.data, NodeTypeGraph):  # whose model reads edges of every type
            return torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
        return levels(self.distance.of_graph(graph), self.far_off_)

    def looking_at(self, graph: PreparedGraph) -> Self:
        """The same, that hears no node which is absurdly far off, nor one that is far off, if there are many."""
        found = self.levels(graph)
        return self.with_far((found > 0).double().mean(), (found > 1).double().mean(), len(found))

    def with_far(self, share: Tensor, absurd: Tensor, nodes: int) -> Self:
        """The same by the shares of a graph's nodes that are far off and absurdly so, and how many nodes it has."""
        new = copy.copy(self)
        new.silencing_ = _excess(share, self.usual_far_, min(nodes, int(self.validated_)))
        new.silent_from_ = torch.where(new.silencing_ > 0, 1, torch.where(absurd > 0, 2, ALL_HEARD))
        return new

    @property
    def silences(self) -> bool:
        """Whether some nodes are not heard in the graph that was seen last."""
        return int(self.silent_from_) < ALL_HEARD

    def heard(self, outputs: Outputs) -> Outputs:
        """The outputs without the edges that lead from nodes that are not heard."""
        return outputs.without_messages(self.levels(outputs.graph) >= self.silent_from_) if self.silences else outputs
