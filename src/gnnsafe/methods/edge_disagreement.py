"""What the edges change in a prediction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.scores import log_probabilities, saturated

__all__ = ["EdgeDisagreement"]


@dataclass
class EdgeDisagreement(Method):
    """What the edges change: KL(p without edges ‖ p with edges), one model run twice (ours)."""

    base_reach = 0
    says = "prediction changed by its edges"

    def base_scores(self, outputs: Outputs) -> Tensor:
        """Σ_c p°_c (log p°_c − log p_c), p° of every node alone."""
        alone = log_probabilities(outputs.without_edges.logits, task=outputs.task)
        together = log_probabilities(outputs.logits, task=outputs.task)
        return saturated((alone.exp() * (alone - together)).sum(dim=1, dtype=torch.float64))
