"""Distance to the nearest training embeddings, all of them diffused along the edges."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.errors import require_whole
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.knn import nearest_distances
from gnnsafe.methods.rows import unit_rows
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Propagation, diffused

__all__ = ["DiffusedKNN"]


@dataclass
class DiffusedKNN(Method):
    """Mean distance to the k nearest training embeddings after s steps h ← ½h + ½D⁻¹Ah, propagated (ours).

    Diffusion makes an embedding speak for its surroundings, propagation the score: both help where OOD nodes stand
    together. `diffusion=2, steps=0` suits OOD nodes among ID nodes better.
    """

    diffusion: int = 8
    k: int = 10
    steps: int = 16
    bank_: Tensor = fitted()

    def __post_init__(self) -> None:
        require_whole("diffusion", self.diffusion, 0)
        require_whole("k", self.k, 1)
        require_whole("steps", self.steps, 0)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> DiffusedKNN:
        """Keep the training nodes' diffused embeddings."""
        super().fit(outputs, y, mask)
        self.bank_ = self._diffused(outputs)[mask]
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """The mean of ‖ĥ − ĥ_(1)‖, …, ‖ĥ − ĥ_(k)‖."""
        return nearest_distances(self._diffused(outputs), self.bank_, self.k).mean(dim=1).float()

    @property
    def base_reach(self) -> int:
        """One hop with each step of diffusion."""
        return self.diffusion

    @property
    def propagation(self) -> Propagation:
        """As many steps as its settings say."""
        return Propagation(self.steps)

    def _diffused(self, outputs: Outputs) -> Tensor:
        return unit_rows(diffused(outputs.embeddings, outputs.graph.edges, steps=self.diffusion))
