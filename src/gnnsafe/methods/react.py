"""Energy with the largest activations cut off."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gnnsafe.errors import is_number, require
from gnnsafe.graph import node_mask
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.rows import quantiles
from gnnsafe.outputs import Outputs
from gnnsafe.scores import check_unnormalised, energy, saturated

__all__ = ["ReAct"]


@dataclass
class ReAct(Method):
    """Energy of the logits of min(h, c), c the 90th percentile of ID validation activations (Sun et al., 2021).

    Args:
        percentile: Of the validation nodes' activations: larger ones are cut off there.

    Raises:
        InputError: An argument breaks its rule.
    """

    percentile: float = 90.0
    limit_: float = fitted()

    base_reach = 0

    def __post_init__(self) -> None:
        holds = is_number(self.percentile) and 0 < self.percentile <= 100
        require(holds, "percentile", "lie in (0, 100]", self.percentile)

    def learns_from_validation(self) -> bool:
        """It does."""
        return True

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> ReAct:
        """Learn where to cut: from the validation nodes, `val_mask` of the graph."""
        super().fit(outputs, y, mask)
        if outputs.task == "multiclass":
            check_unnormalised(energy(outputs.logits))
        activations = outputs.embeddings[node_mask(outputs.graph, "val_mask")]
        self.limit_ = float(quantiles(activations.flatten(), [self.percentile / 100]))
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−log Σ_c exp(z_c) of the model with its embeddings cut off at c."""
        limit = self.limit_
        clipped = outputs.again(edit=lambda embeddings: embeddings.clamp(max=limit))
        return saturated(energy(clipped.logits, task=outputs.task))
