"""Edges that leave a node, less those that reach it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.one_sided import OneSided
from gnnsafe.outputs import Outputs

__all__ = ["DegreeBalance"]


@dataclass
class DegreeBalance(OneSided):
    """Points to many, few point to it: out-degree minus in-degree, no model (trivial).

    A new paper cites and is not cited yet. In an undirected graph it is 0 for every node. With side="low" it is the
    reverse.

    Args:
        side: "high", or "low" for the reverse.

    Raises:
        InputError: An argument breaks its rule.
    """

    base_reach = 0  # a part of a graph knows the out-degrees of the whole

    @property
    def says(self) -> str:
        """By its side."""
        return "points to many, few point to it" if self.side == "high" else "many point to it, it points to few"

    def value(self, outputs: Outputs) -> Tensor:
        """Out-degree minus in-degree."""
        edges = outputs.graph.edges
        return edges.out_degrees - edges.in_degrees
