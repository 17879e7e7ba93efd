"""Free energy of the logits."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.scores import check_temperature, check_unnormalised, energy, saturated

__all__ = ["Energy", "energies_of"]


@dataclass
class Energy(Method):
    """Free energy of the logits: −T log Σ_c exp(z_c / T) (Liu et al., 2020).

    Args:
        temperature: T, above 0.

    Raises:
        InputError: An argument breaks its rule.

    >>> import torch
    >>> from types import SimpleNamespace
    >>> path = SimpleNamespace(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]))  # 0 → 1
    >>> Energy().score(Outputs(torch.tensor([[8.0, -99.0], [0.0, -99.0]]), path)).tolist()
    [-8.0, -0.0]
    """

    temperature: float = 1.0

    base_reach = 0
    says = "high energy of the logits"

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−T log Σ_c exp(z_c / T)."""
        return energies_of(outputs, self.temperature)


def energies_of(outputs: Outputs, temperature: float) -> Tensor:
    """The energy of each node, once logits are known not to be log-probabilities, which have none."""
    energies = energy(outputs.logits, temperature=temperature, task=outputs.task)
    if outputs.task == "multiclass":
        check_unnormalised(energies if temperature == 1 else energy(outputs.logits))
    return saturated(energies)
