"""Roughness of the embeddings around a node."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.errors import require_whole
from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Propagation
from gnnsafe.scores import saturated

__all__ = ["DirichletEnergy"]

ROUNDING = 1e-12  # of the squares that are subtracted: less than that is left of them where all are alike


@dataclass
class DirichletEnergy(Method):
    """Roughness of the embeddings: mean_j ‖h_i/√(1+d_i) − h_j/√(1+d_j)‖², propagated (Bao et al., 2024).

    j runs over the nodes that point to i, d counts them. A node that nobody points to has energy 0.
    """

    steps: int = 2

    base_reach = 1

    def __post_init__(self) -> None:
        require_whole("steps", self.steps, 0)

    def base_scores(self, outputs: Outputs) -> Tensor:
        """‖a_i‖² − 2⟨a_i, mean_j a_j⟩ + mean_j ‖a_j‖², a = h/√(1+d)."""
        edges, h = outputs.graph.edges, outputs.embeddings.double()
        mean = edges.mean(h.dtype)
        a = h / (1 + edges.in_degrees).sqrt()[:, None]
        square = a.square().sum(dim=1)
        squares = square + mean @ square
        roughness = squares - 2 * (a * (mean @ a)).sum(dim=1)
        return saturated(roughness.where(roughness > ROUNDING * squares, 0))

    @property
    def propagation(self) -> Propagation:
        """As many steps as its settings say."""
        return Propagation(self.steps)
