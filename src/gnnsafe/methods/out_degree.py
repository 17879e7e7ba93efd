"""Edges that leave a node."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.one_sided import OneSided
from gnnsafe.outputs import Outputs

__all__ = ["OutDegree"]


@dataclass
class OutDegree(OneSided):
    """Points to many, or with side="low" to few: out-degree, no model (trivial).

    Args:
        side: "high": much of it is odd; "low": little of it is.

    Raises:
        InputError: An argument breaks its rule.
    """

    base_reach = 0  # a part of a graph knows the out-degrees of the whole

    @property
    def says(self) -> str:
        """By its side."""
        return f"points to {'many' if self.side == 'high' else 'few'}"

    def value(self, outputs: Outputs) -> Tensor:
        """Out-degree."""
        return outputs.graph.edges.out_degrees
