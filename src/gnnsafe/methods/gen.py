"""Generalised entropy."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.scores import check_gamma, generalized_entropy

__all__ = ["GEN"]


@dataclass
class GEN(Method):
    """Generalised entropy: Σ_c p_c^γ (1 − p_c)^γ (Liu et al., 2023).

    Args:
        gamma: The exponent γ, between 0 and 1: the smaller, the more small probabilities count.

    Raises:
        InputError: An argument breaks its rule.
    """

    gamma: float = 0.1

    base_reach = 0

    def __post_init__(self) -> None:
        check_gamma(self.gamma)

    def base_scores(self, outputs: Outputs) -> Tensor:
        """Σ_c p_c^γ (1 − p_c)^γ."""
        return generalized_entropy(outputs.logits, gamma=self.gamma, task=outputs.task).float()
