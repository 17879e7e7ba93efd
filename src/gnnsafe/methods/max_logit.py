"""Maximum logit."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.scores import max_logit, saturated

__all__ = ["MaxLogit"]


@dataclass
class MaxLogit(Method):
    """Maximum logit, negated: −max_c z_c (Hendrycks et al., 2022)."""

    base_reach = 0
    says = "no class has a large logit"

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−max_c z_c."""
        return saturated(max_logit(outputs.logits))
