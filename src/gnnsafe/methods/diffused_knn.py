"""Distance to the nearest training embeddings, all of them diffused along the edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.errors import require_whole
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.knn import nearest_distances
from gnnsafe.methods.rows import unit_rows
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Propagation, diffused

__all__ = ["DiffusedKNN"]

SEED = 0  # of the training nodes that are kept where there are too many


@dataclass
class DiffusedKNN(Method):
    """Mean distance to the k nearest training embeddings after s steps h ← ½h + ½D⁻¹Ah, propagated (ours).

    Diffusion makes an embedding speak for its surroundings, propagation the score: both help where OOD nodes stand
    together. `diffusion=2, steps=0` suits OOD nodes among ID nodes better. With `bank` at most so many training nodes
    are kept, drawn with a fixed seed: time and memory then no longer grow with their number.

    Args:
        diffusion: How often embeddings are averaged with those of in-neighbours, s.
        k: How many of the nearest training nodes count.
        steps: How often the score is propagated.
        bank: At most so many training nodes are kept; None: all.

    Raises:
        InputError: An argument breaks its rule.
    """

    diffusion: int = 8
    k: int = 10
    steps: int = 16
    bank: int | None = None
    bank_: Tensor = fitted()

    def __post_init__(self) -> None:
        require_whole("diffusion", self.diffusion, 0)
        require_whole("k", self.k, 1)
        require_whole("steps", self.steps, 0)
        if self.bank is not None:
            require_whole("bank", self.bank, 1)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> DiffusedKNN:
        """Keep the training nodes' diffused embeddings."""
        super().fit(outputs, y, mask)
        bank = self._diffused(outputs)[mask]
        self.bank_ = bank if self.bank is None or len(bank) <= self.bank else bank[_drawn(len(bank), self.bank)]
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

    @property
    def says(self) -> str:
        """That of its surroundings where it is propagated."""
        return f"{'around it: ' * (self.steps > 0)}embedding unlike training nodes'"

    def _diffused(self, outputs: Outputs) -> Tensor:
        return unit_rows(diffused(outputs.embeddings, outputs.graph.edges, steps=self.diffusion))


def _drawn(count: int, size: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(SEED), device="cpu")[:size].sort().values
