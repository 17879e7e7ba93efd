"""Virtual-logit matching: what of an embedding lies off the training data's main directions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.errors import require_whole
from gnnsafe.methods.base import Method, fitted
from gnnsafe.outputs import Outputs
from gnnsafe.scores import check_unnormalised, energy, saturated

__all__ = ["ViM"]


@dataclass
class ViM(Method):
    """Virtual logit and energy: a‖Rᵀ(h − μ)‖ − log Σ_c exp(z_c), R the least principal directions (Wang et al., 2022).

    R spans the `residual` directions of least variance of the training embeddings (at most half of all directions), a
    makes the virtual logits of training nodes as large on average as their largest logits. The origin is the training
    mean: the original's, which solves for the last layer's bias, would need to know the model.

    Args:
        residual: How many directions of least variance make the virtual logit.

    Raises:
        InputError: An argument breaks its rule.
    """

    residual: int = 32
    origin_: Tensor = fitted()
    directions_: Tensor = fitted()
    scale_: float = fitted()

    base_reach = 0

    def __post_init__(self) -> None:
        require_whole("residual", self.residual, 1)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> ViM:
        """Learn the directions that training embeddings hardly use."""
        super().fit(outputs, y, mask)
        if outputs.task == "multiclass":
            check_unnormalised(energy(outputs.logits))
        h = outputs.embeddings[mask].double()
        self.origin_ = h.mean(dim=0)
        centred = h - self.origin_
        _, vectors = torch.linalg.eigh(centred.T @ centred)  # least first
        self.directions_ = vectors[:, : min(self.residual, max(1, h.shape[1] // 2))]
        length = (centred @ self.directions_).norm(dim=1).mean()
        largest = outputs.logits[mask].amax(dim=1).double().mean().abs()  # else far would read as near
        noise = 1e-6 * centred.norm(dim=1).mean()  # all that is left where nodes are fewer than directions
        self.scale_ = float(largest / length) if length > noise else 0.0
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """a‖Rᵀ(h − μ)‖ − log Σ_c exp(z_c)."""
        residual: Tensor = ((outputs.embeddings.double() - self.origin_) @ self.directions_).norm(dim=1)
        return saturated(self.scale_ * residual + energy(outputs.logits.double(), task=outputs.task))
