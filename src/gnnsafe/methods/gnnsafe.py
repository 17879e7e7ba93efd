"""Energy, propagated along the edges: the paper's method."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.base import Method
from gnnsafe.methods.energy import Energy
from gnnsafe.methods.propagated import Propagated
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import Unpropagated
from gnnsafe.sparse import Isolated

__all__ = ["GNNSafe"]


@dataclass
class GNNSafe(Method):
    """Energy propagated along edges: K times s ← α s + (1−α) D⁻¹A s (Wu et al., 2023).

    It is `Propagated(Energy())`. On a model trained with `EnergyMargin` this is the paper's GNNSafe++.
    `isolated="decay"` reproduces its published runs: see `gnnsafe.propagate`.
    """

    steps: int = 2
    alpha: float = 0.5
    temperature: float = 1.0
    isolated: Isolated = "keep"

    def __post_init__(self) -> None:
        self._propagated()

    def score(self, outputs: Outputs) -> Tensor:
        """The energy of each node after `steps` rounds of hearing its in-neighbours."""
        return self._propagated().score(outputs)

    def unpropagated(self, outputs: Outputs) -> Unpropagated:
        """The energy of each node."""
        return self._propagated().unpropagated(outputs)

    def reach(self) -> int:
        """One edge further with each step."""
        return self.steps

    def _propagated(self) -> Propagated:
        return Propagated(Energy(self.temperature), self.steps, self.alpha, self.isolated)
