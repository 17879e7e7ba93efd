"""Entropy of the predicted distribution."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.scores import entropy

__all__ = ["Entropy"]


@dataclass
class Entropy(Method):
    """Entropy of the predicted distribution: −Σ_c p_c log p_c (Malinin & Gales, 2018)."""

    base_reach = 0
    says = "many classes are likely"

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−Σ_c p_c log p_c."""
        return entropy(outputs.logits, task=outputs.task).float()
