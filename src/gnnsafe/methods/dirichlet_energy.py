"""Roughness of the logits around a node."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.errors import require_whole
from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import propagate
from gnnsafe.sparse import in_degrees, mean_matrix

__all__ = ["DirichletEnergy"]


@dataclass
class DirichletEnergy(Method):
    """Roughness of the logits f around a node: mean_j ‖f_i/√(1+d_i) − f_j/√(1+d_j)‖², propagated (Bao et al., 2024).

    j runs over the nodes that point to i, d counts them. A node that nobody points to has energy 0.
    """

    steps: int = 2

    def __post_init__(self) -> None:
        require_whole("steps", self.steps, 0)

    def score(self, outputs: Outputs) -> Tensor:
        """‖a_i‖² − 2⟨a_i, mean_j a_j⟩ + mean_j ‖a_j‖², a = f/√(1+d), propagated."""
        edges, logits = outputs.graph.edge_index, outputs.logits.double()
        mean = mean_matrix(edges, num_nodes=len(logits), dtype=logits.dtype, isolated="keep")
        a = logits / (1 + in_degrees(edges, len(logits))).sqrt()[:, None]
        square = a.square().sum(dim=1)
        roughness = square - 2 * (a * (mean @ a)).sum(dim=1) + mean @ square
        return propagate(roughness.clamp(min=0).float(), edges, steps=self.steps)
