"""The objective of posterior networks: cross-entropy under the uncertainty that they state themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.distributions import Dirichlet

from gnnsafe.checks import Task
from gnnsafe.errors import is_number, require, require_whole
from gnnsafe.graph import node_labels, node_mask
from gnnsafe.models.gpn import GPN
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph
from gnnsafe.training.objectives import Objective, check_multiclass

__all__ = ["UncertainCrossEntropy"]


@dataclass(frozen=True)
class UncertainCrossEntropy(Objective):
    """Expected cross-entropy under Dir(α), Σ_i ψ(α₀) − ψ(α_y), − λ entropy(Dir(α)): for a GPN  (Stadler et al., 2021).

    A sum over the training nodes, as there. For `warmup` epochs only the flows learn; the model is given the classes'
    shares of the training nodes before the first.

    Args:
        weight: λ, of the entropy in the loss, at least 0.
        warmup: For how many epochs only the flows learn.
        counts_: Set by `bound`.

    Raises:
        InputError: An argument breaks its rule.
    """

    weight: float = 1e-4
    warmup: int = 5
    counts_: Tensor | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        require(is_number(self.weight) and 0 <= self.weight < math.inf, "weight", "be >= 0", self.weight)
        require_whole("warmup", self.warmup, 0)

    def bound(
        self, data: PreparedGraph, teach: Callable[[Objective], Tensor], task: Task = "multiclass"
    ) -> UncertainCrossEntropy:
        """With the number of training nodes of each class."""
        check_multiclass(task, self)
        return replace(self, counts_=node_labels(data)[node_mask(data, "train_mask")].bincount())

    def begin_epoch(self, model: nn.Module, epoch: int) -> None:
        """Give the model the classes' shares, and freeze all but its flows while they warm up."""
        require(isinstance(model, GPN), "model", f"be a GPN for {self!r}", type(model).__name__)
        assert isinstance(model, GPN)
        if self.counts_ is not None:
            model.class_shares.zero_()[: len(self.counts_)] = self.counts_ / self.counts_.sum()
        model.requires_grad_(epoch >= self.warmup)
        model.flows.requires_grad_(True)

    def reach(self) -> int:
        """The training nodes alone."""
        return 0

    def loss(self, outputs: Outputs, exposure: Outputs | None = None, *, epoch: int = 0) -> Tensor:
        """Expected cross-entropy less the weighted entropy, summed over the training nodes; the logits are log α."""
        check_multiclass(outputs.task, self)
        mask = node_mask(outputs.graph, "train_mask")
        alpha = outputs.logits[mask].double().exp()  # the entropy subtracts large terms
        right = alpha.gather(1, node_labels(outputs.graph)[mask].unsqueeze(1)).squeeze(1)
        expected = torch.digamma(alpha.sum(dim=1)) - torch.digamma(right)
        entropy: Tensor = Dirichlet(alpha, validate_args=False).entropy()  # type: ignore[no-untyped-call]
        return (expected - self.weight * entropy).sum()
