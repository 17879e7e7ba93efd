"""Roughness of the embeddings around a node."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.errors import require_whole
from gnnsafe.homophily import roughness
from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Propagation
from gnnsafe.scores import saturated

__all__ = ["DirichletEnergy"]

ROUNDING = 1e-12  # of the squares that are subtracted: less than that is left of them where all are alike


@dataclass
class DirichletEnergy(Method):
    """Roughness of the embeddings: mean_j ‖h_i/√(1+d_i) − h_j/√(1+d_j)‖², propagated (Bao et al., 2024).

    j runs over the nodes that point to i, d counts them. A node without in-neighbours has energy 0.

    Args:
        steps: How often the score is propagated.

    Raises:
        InputError: An argument breaks its rule.
    """

    steps: int = 2

    base_reach = 1

    def __post_init__(self) -> None:
        require_whole("steps", self.steps, 0)

    def base_scores(self, outputs: Outputs) -> Tensor:
        """The roughness, 0 where it is the rounding of what is subtracted."""
        edges, h = outputs.graph.edges, outputs.embeddings.double()
        mean, square = edges.mean(h.dtype), h.square().sum(dim=1) / (1 + edges.in_degrees)
        found = roughness(h, edges)
        return saturated(found.where(found > ROUNDING * (square + mean @ square), 0))

    @property
    def propagation(self) -> Propagation:
        """As many steps as its settings say."""
        return Propagation(self.steps)
