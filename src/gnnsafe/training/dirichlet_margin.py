"""Margins on the roughness of embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gnnsafe.checks import full_precision
from gnnsafe.errors import is_number, require
from gnnsafe.graph import masked
from gnnsafe.homophily import roughness
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import check_propagation, mixed
from gnnsafe.training.objectives import CrossEntropy, Objective, exposure_missing

__all__ = ["DirichletMargin"]


@dataclass(frozen=True)
class DirichletMargin(Objective):
    """Cross-entropy + λ (mean_ID relu(D − t_in)² + mean_exposure relu(t_out − D)²), D the Dirichlet energy (TopoOOD).

    D_i = mean_j ‖h_i/√(1+d_i) − h_j/√(1+d_j)‖² of the embeddings h, propagated `steps` times: the score of the method
    `DirichletEnergy`, with gradients through it. A node without in-neighbours has D = 0.

    Args:
        t_in: The energy D above which ID nodes are punished.
        t_out: The energy D below which exposure nodes are punished.
        weight: λ, of the margins in the loss, at least 0.
        steps: How often D is propagated.

    Raises:
        InputError: An argument breaks its rule.
    """

    t_in: float = 0.1
    t_out: float = 1.0
    weight: float = 0.1
    steps: int = 2

    needs_exposure: ClassVar[bool] = True
    reads_embeddings: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_propagation(self.steps, 0.5, "keep")
        for name in ("t_in", "t_out"):
            value = getattr(self, name)
            require(is_number(value) and math.isfinite(value), name, "be a finite number", value)
        require(is_number(self.weight) and 0 <= self.weight < math.inf, "weight", "be >= 0", self.weight)

    def loss(self, outputs: Outputs, exposure: Outputs | None = None, *, epoch: int = 0) -> Tensor:
        """Cross-entropy plus the weighted margin loss."""
        if exposure is None:
            raise exposure_missing(self)
        above = (self._energy(outputs, "train_mask") - self.t_in).relu().square().mean()
        below = (self.t_out - self._energy(exposure, "mask")).relu().square().mean()
        return CrossEntropy().loss(outputs) + self.weight * (above + below)

    def _energy(self, outputs: Outputs, mask: str) -> Tensor:
        edges = outputs.graph.edges
        energies = roughness(full_precision(outputs.embeddings), edges)
        return masked(mixed(energies, edges.mean(energies.dtype), self.steps, 0.5), outputs.graph, mask)
