"""Number of neighbours."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.typicality import Typicality
from gnnsafe.outputs import Outputs

__all__ = ["Degree"]


@dataclass
class Degree(Typicality):
    """Unusual number of in-neighbours: d's distance from the training nodes' median, no model (trivial)."""

    base_reach = 0
    says = "unusual number of in-neighbours"

    def value(self, outputs: Outputs) -> Tensor:
        """The number of edges that point to each node."""
        return outputs.graph.edges.in_degrees
