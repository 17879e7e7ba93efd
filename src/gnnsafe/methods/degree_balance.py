"""Edges that leave a node, less those that reach it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gnnsafe.methods.base import Kind, Method
from gnnsafe.outputs import Outputs

__all__ = ["DegreeBalance"]


@dataclass
class DegreeBalance(Method):
    """Points to many, few point to it: out-degree minus in-degree, no model (trivial).

    A new paper cites and is not cited yet. In an undirected graph it is 0 for every node.
    """

    kind: ClassVar[Kind] = "trivial"

    base_reach = 0  # a part of a graph knows the out-degrees of the whole
    says = "points to many, few point to it"

    def base_scores(self, outputs: Outputs) -> Tensor:
        """Out-degree minus in-degree."""
        edges = outputs.graph.edges
        return (edges.out_degrees - edges.in_degrees).float()
