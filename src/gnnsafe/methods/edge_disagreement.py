"""What the edges change in a prediction."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from gnnsafe.errors import ModelWarning
from gnnsafe.methods.base import Method
from gnnsafe.outputs import Outputs
from gnnsafe.scores import log_probabilities, saturated

__all__ = ["EdgeDisagreement"]


@dataclass
class EdgeDisagreement(Method):
    """What the edges change: KL(p without edges ‖ p with edges), one model run twice (ours)."""

    base_reach = 0
    says = "prediction changed by its edges"

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> Self:
        """Nothing is learnt; a model that reads no edges, by which every score is 0, is said to be one."""
        super().fit(outputs, y, mask)
        source, target = outputs.graph.edge_index
        if bool((source != target).any()) and torch.equal(outputs.logits, outputs.without_edges.logits):
            message = "the model gives the same logits without edges: EdgeDisagreement is 0 for every node"
            warnings.warn(f"{message}; choose another method, or a model that reads edges", ModelWarning, stacklevel=3)
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """Σ_c p°_c (log p°_c − log p_c), p° of every node alone."""
        alone = log_probabilities(outputs.without_edges.logits, task=outputs.task)
        together = log_probabilities(outputs.logits, task=outputs.task)
        return saturated((alone.exp() * (alone - together)).sum(dim=1, dtype=torch.float64))
