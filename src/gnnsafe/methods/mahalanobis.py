"""Distance to the nearest class in the space of embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.methods.base import Method, class_members, fitted
from gnnsafe.methods.perturbation import check_epsilon, perturbed
from gnnsafe.outputs import Outputs

__all__ = ["Mahalanobis"]


@dataclass
class Mahalanobis(Method):
    """Distance to the nearest class mean: min_c (h−μ_c)ᵀΣ⁻¹(h−μ_c), one Σ for all classes (Lee et al., 2018).

    Directions in which training embeddings do not vary have no say (pseudo-inverse). With ε > 0 features take a step
    that lowers the distance first, as ODIN's do.
    """

    epsilon: float = 0.0
    whitening_: Tensor = fitted()
    means_: Tensor = fitted()

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> Mahalanobis:
        """Learn W with W Wᵀ = Σ⁻¹, and the class means times W; classes without a training node have none."""
        super().fit(outputs, y, mask)
        h = outputs.embeddings[mask].double()
        members = class_members(y, mask, outputs.logits.shape[1], task=outputs.task, dtype=h.dtype)
        members = members[:, members.any(dim=0)]
        means = members.T @ h / members.sum(dim=0)[:, None]
        residuals = torch.cat([(h - mean)[member > 0] for mean, member in zip(means, members.T, strict=True)])
        values, vectors = torch.linalg.eigh(residuals.T @ residuals / len(residuals))
        kept = values > values[-1] * len(values) * torch.finfo(outputs.embeddings.dtype).eps
        self.whitening_ = vectors[:, kept] / values[kept].sqrt()
        self.means_ = means @ self.whitening_
        return self

    def score(self, outputs: Outputs) -> Tensor:
        """min_c ‖hW − μ_c W‖²."""
        means, whitening = self.means_, self.whitening_

        def distance(outputs: Outputs) -> Tensor:
            rows = torch.split(outputs.embeddings, CHUNK)
            return torch.cat([_squared_distances(h.double() @ whitening, means).amin(dim=1) for h in rows])

        after = perturbed(outputs, self.epsilon, lambda outputs: distance(outputs).sum())
        return distance(after).float()


CHUNK = 65536  # rows at a time, so that a million nodes need no second copy of their embeddings


def _squared_distances(points: Tensor, means: Tensor) -> Tensor:
    return torch.stack([(points - mean).square().sum(dim=1) for mean in means], dim=1)
