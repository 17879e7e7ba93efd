"""Edges that reach a node."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.one_sided import OneSided
from gnnsafe.outputs import Outputs

__all__ = ["InDegree"]


@dataclass
class InDegree(OneSided):
    """Many point to it, or with side="low" few do: in-degree, no model (trivial).

    Args:
        side: "high": much of it is odd; "low": little of it is.

    Raises:
        InputError: An argument breaks its rule.
    """

    base_reach = 0

    @property
    def says(self) -> str:
        """By its side."""
        return f"{'many' if self.side == 'high' else 'few'} point to it"

    def value(self, outputs: Outputs) -> Tensor:
        """In-degree."""
        return outputs.graph.edges.in_degrees
