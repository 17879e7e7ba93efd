"""Maximum softmax probability."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.scores import max_softmax

__all__ = ["MSP"]


@dataclass
class MSP(Method):
    """Maximum softmax probability, negated: −max_c p_c (Hendrycks & Gimpel, 2017)."""

    base_reach = 0
    says = "no class is likely"

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−max_c softmax(z)_c."""
        return max_softmax(outputs.logits, task=outputs.task).float()
