"""Distance to the nearest class in the space of embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.classes import class_members
from gnnsafe.methods.perturbation import check_epsilon, perturbed
from gnnsafe.methods.rows import unit_rows, vary
from gnnsafe.outputs import Outputs
from gnnsafe.scores import saturated

__all__ = ["Mahalanobis", "ledoit_wolf"]

CHUNK = 65536  # rows at a time, so that a million nodes need no second copy of their embeddings


def ledoit_wolf(residuals: Tensor) -> Tensor:
    """Covariance of centred rows, shrunk: (1−s) S + s tr(S)/d I, s from the rows themselves  (Ledoit & Wolf, 2004).

    >>> ledoit_wolf(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    tensor([[1., 0.],
            [0., 0.]])
    """
    count, size = residuals.shape
    plain = residuals.T @ residuals / count
    target = torch.eye(size, dtype=plain.dtype, device=plain.device) * plain.trace() / size
    spread = (plain - target).square().sum()
    error = (residuals.square().sum(dim=1).square().mean() - plain.square().sum()) / count
    share = 0.0 if spread == 0 else float((error / spread).clamp(0, 1))
    return (1 - share) * plain + share * target


@dataclass
class Mahalanobis(Method):
    """Distance to the nearest class mean: min_c (h−μ_c)ᵀΣ⁻¹(h−μ_c), one Σ for all classes (Lee et al., 2018).

    Embeddings have unit length first (`normalize`, after Mueller & Hein, 2025): OOD nodes have short ones, which lie
    near every mean. Σ is Ledoit and Wolf's estimate, since training nodes are few; directions in which they do not
    vary are left out. With ε > 0 features take a step that lowers the distance first, as ODIN's do.

    Args:
        epsilon: ε, the size of the step that features take first; 0: none.
        normalize: Whether embeddings are scaled to unit length.

    Raises:
        InputError: An argument breaks its rule.
    """

    epsilon: float = 0.0
    normalize: bool = True
    whitening_: Tensor = fitted()
    means_: Tensor = fitted()

    says = "embedding far from every class"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> Mahalanobis:
        """Learn W with W Wᵀ = Σ⁻¹, and the class means times W; classes without a training node have none."""
        super().fit(outputs, y, mask)
        h = self._rows(outputs.embeddings[mask])
        members = class_members(y, mask, outputs.logits.shape[1], task=outputs.task, dtype=h.dtype)
        members = members[:, members.any(dim=0)]
        means = members.T @ h / members.sum(dim=0)[:, None]
        residuals = torch.cat([(h - mean)[member > 0] for mean, member in zip(means, members.T, strict=True)])
        dtype = outputs.embeddings.dtype
        if not vary(residuals, h, dtype):  # one node per class: what they share is how they differ from each other
            residuals = h - h.mean(dim=0)
        require(vary(residuals, h, dtype), "embeddings", "differ between training nodes", "all alike")
        values, vectors = torch.linalg.eigh(ledoit_wolf(residuals))
        kept = values > values[-1] * len(values) * torch.finfo(dtype).eps
        self.whitening_ = vectors[:, kept] / values[kept].sqrt()
        self.means_ = means @ self.whitening_
        return self

    @property
    def base_reach(self) -> int | None:
        """Any, once features move: a node's step depends on the loss of all whose receptive field it is in."""
        return 0 if self.epsilon == 0 else None

    def base_scores(self, outputs: Outputs) -> Tensor:
        """min_c ‖hW − μ_c W‖²."""
        self.means_  # noqa: B018 - says if it is not fitted before any work is done
        after = perturbed(outputs, self.epsilon, lambda outputs: self._distance(outputs).sum())
        return saturated(self._distance(after))

    def _distance(self, outputs: Outputs) -> Tensor:
        return torch.cat([self._nearest(rows) for rows in torch.split(outputs.embeddings, CHUNK)])

    def _nearest(self, embeddings: Tensor) -> Tensor:
        centre = self.means_.mean(dim=0)  # about it squares are small, and so is their rounding
        points, means = self._rows(embeddings) @ self.whitening_ - centre, self.means_ - centre
        lengths = points.square().sum(dim=1, keepdim=True)
        return (lengths - 2 * points @ means.T + means.square().sum(dim=1)).amin(dim=1).clamp(min=0)

    def _rows(self, embeddings: Tensor) -> Tensor:
        return unit_rows(embeddings.double()) if self.normalize else embeddings.double()
