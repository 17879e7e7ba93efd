"""Energy, propagated along the edges: the paper's method."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import check_propagation, propagate
from gnnsafe.scores import check_temperature, energy
from gnnsafe.sparse import Isolated

__all__ = ["GNNSafe"]


@dataclass(frozen=True)
class GNNSafe(Method):
    """Energy propagated along edges: K times s ← α s + (1−α) D⁻¹A s (Wu et al., 2023).

    On a model trained with `EnergyMargin` this is the paper's GNNSafe++. `isolated="decay"` reproduces its
    published runs: see `gnnsafe.propagate`.
    """

    steps: int = 2
    alpha: float = 0.5
    temperature: float = 1.0
    isolated: Isolated = "keep"

    def __post_init__(self) -> None:
        check_propagation(self.steps, self.alpha, self.isolated)
        check_temperature(self.temperature)

    def score(self, outputs: Outputs) -> Tensor:
        """The energy of each node after `steps` rounds of hearing its in-neighbours."""
        return propagate(
            energy(outputs.logits, temperature=self.temperature).float(),
            outputs.graph.edge_index,
            steps=self.steps,
            alpha=self.alpha,
            isolated=self.isolated,
        )
