"""Energy, propagated along the edges: the paper's method."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.edges import Isolated
from gnnsafe.methods.base import Method
from gnnsafe.methods.energy import energies_of
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Propagation, check_propagation
from gnnsafe.scores import check_temperature

__all__ = ["GNNSafe"]


@dataclass
class GNNSafe(Method):
    """Energy propagated along edges: K times s ← α s + (1−α) D⁻¹A s (Wu et al., 2023).

    It is `Propagated(Energy())`. On a model trained with `EnergyMargin` this is the paper's GNNSafe++.
    `isolated="decay"` reproduces its published runs: see `gnnsafe.propagate`.

    Args:
        steps: How often energies are propagated, K.
        alpha: How much of its own score a node keeps at each step, from 0 to 1.
        temperature: T of the energy, above 0.
        isolated: What becomes of a node without in-neighbours: "keep" its score, or let it "decay" by α at every step.

    Raises:
        InputError: An argument breaks its rule.

    >>> import torch
    >>> from types import SimpleNamespace
    >>> path = SimpleNamespace(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]))  # 0 → 1
    >>> GNNSafe(steps=1).score(Outputs(torch.tensor([[8.0, -99.0], [0.0, -99.0]]), path)).tolist()
    [-8.0, -4.0]
    """

    steps: int = 2
    alpha: float = 0.5
    temperature: float = 1.0
    isolated: Isolated = "keep"

    base_reach = 0
    says = "around it: high energy of the logits"

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        check_propagation(self.steps, self.alpha, self.isolated)

    def base_scores(self, outputs: Outputs) -> Tensor:
        """The energy of each node."""
        return energies_of(outputs, self.temperature)

    @property
    def propagation(self) -> Propagation:
        """As its settings say."""
        return Propagation(self.steps, self.alpha, self.isolated)
