"""GEBM: energies of the graph, of its surroundings and of the node, with a density."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.checks import FLOAT32_MAX
from gnnsafe.errors import is_number, require, require_whole
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.classes import check_multiclass, class_members
from gnnsafe.methods.rows import quantiles, vary
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import diffused
from gnnsafe.scores import saturated

__all__ = ["GEBM"]

COVERED = (0.025, 0.975)  # what counts as the range of distances and of logits


@dataclass
class GEBM(Method):
    """Energy at three scales: −lse(P e) + P(−lse e) − lse(e), e = z − γ · distance (Fuchsgruber et al., 2024).

    e is the evidence for each class: its logit less the squared distance to the class's diagonal Gaussian of
    embeddings, mapped to the range of the logits. z and h are of every node alone, without edges; P is `steps`
    rounds of diffusion with α = ½.

    Args:
        gamma: γ, how much the distance to a class counts, at least 0.
        steps: How often evidence and energies are averaged with those of in-neighbours.

    Raises:
        InputError: An argument breaks its rule.
    """

    gamma: float = 1.0
    steps: int = 10
    classes_: Tensor = fitted()
    means_: Tensor = fitted()
    variances_: Tensor = fitted()
    slope_: Tensor = fitted()
    offset_: Tensor = fitted()

    def __post_init__(self) -> None:
        require(is_number(self.gamma) and 0 <= self.gamma <= FLOAT32_MAX, "gamma", "be >= 0", self.gamma)
        require_whole("steps", self.steps, 0)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> GEBM:
        """Learn each class's Gaussian, and what maps distances to the logits' range; classes without a node are out."""
        super().fit(outputs, y, mask)
        check_multiclass(self, outputs)
        h, logits = outputs.embeddings[mask].double(), outputs.logits[mask].double()
        members = class_members(y, mask, logits.shape[1], task=outputs.task, dtype=h.dtype)
        self.classes_ = members.any(dim=0).nonzero().flatten()
        members = members[:, self.classes_]
        count = members.sum(dim=0)[:, None]
        self.means_ = members.T @ h / count
        squares = torch.cat(
            [member[None] @ (h - mean).square() for mean, member in zip(self.means_, members.T, strict=True)]
        )
        pooled, total = squares.sum(dim=0) / count.sum(), h - h.mean(dim=0)
        dtype = outputs.embeddings.dtype
        if not vary(pooled.sqrt(), h, dtype):  # all alike within each class: what is left is how the classes differ
            pooled = total.square().mean(dim=0)
        varied = vary(total, h, dtype) and bool(pooled.any())
        require(varied, "embeddings", "differ between training nodes", "all alike")
        # A unit that is silent in a class, or a class of one node, has no variance of its own: the pooled one helps.
        self.variances_ = squares / count + 0.01 * pooled + 1e-6 * pooled.mean()
        near, far = quantiles(self._distances(h), COVERED)
        low, high = quantiles(logits[:, self.classes_], COVERED)
        near = near.where(far - near > 1e-9 * far, 0)  # all equally far: the range of distances begins at 0
        self.slope_ = ((high - low) / (far - near)).where(far > near, 0)
        self.offset_ = low - self.slope_ * near
        return self

    @property
    def base_reach(self) -> int:
        """One hop with each round of diffusion."""
        return self.steps

    def base_scores(self, outputs: Outputs) -> Tensor:
        """−lse(P e) + P(−lse e) − lse(e)."""
        alone = outputs.without_edges
        distance = self.slope_ * self._distances(alone.embeddings.double()) + self.offset_
        evidence = alone.logits.double()[:, self.classes_] - self.gamma * distance
        evidence = evidence.clamp(-FLOAT32_MAX, FLOAT32_MAX)

        def smooth(values: Tensor) -> Tensor:
            return diffused(values, outputs.graph.edges, steps=self.steps)

        own = -torch.logsumexp(evidence, dim=1)
        return saturated(-torch.logsumexp(smooth(evidence), dim=1) + smooth(own) + own)

    def _distances(self, h: Tensor) -> Tensor:
        pairs = zip(self.means_, self.variances_, strict=True)
        return torch.stack([((h - mean).square() / variance).sum(dim=1) for mean, variance in pairs], dim=1)
