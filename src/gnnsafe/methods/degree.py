"""Number of neighbours."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.typicality import Typicality
from gnnsafe.outputs import Outputs
from gnnsafe.sparse import in_degrees

__all__ = ["Degree"]


@dataclass
class Degree(Typicality):
    """Unusual number of in-neighbours: d's distance from the training nodes' median, no model (trivial)."""

    base_reach = 0

    def value(self, outputs: Outputs) -> Tensor:
        """The number of edges that point to each node."""
        return in_degrees(outputs.graph.edge_index, outputs.graph.x.shape[0])
