"""Exposure without collected OOD nodes: unlikely embeddings, as if of OOD nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import ClassVar

import torch
from torch import Tensor

from gnnsafe.checks import Task
from gnnsafe.errors import InputError, require, require_whole
from gnnsafe.graph import masked, node_labels
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph, prepare
from gnnsafe.training.objectives import CrossEntropy, EnergyMargin, Objective, check_multiclass

__all__ = ["SyntheticExposure", "unlikely"]

RIDGE = 1e-3  # of the mean variance, on the covariance's diagonal


@dataclass(frozen=True)
class SyntheticExposure(Objective):
    """`EnergyMargin` with pseudo-OOD nodes: the least likely draws from the classes' Gaussians  (GOLD's idea, 2025).

    Each epoch from `first_epoch` on, `candidates` embeddings are drawn from Gaussians around the class means of the
    training nodes' embeddings (one covariance, as in Du et al., 2022); the `kept` least likely of them stand for
    exposure nodes, each of them alone: the model's last layers make logits of them, as in evaluation. No OOD node is
    read.

    Args:
        t_in: The energy above which ID nodes are punished.
        t_out: The energy below which exposure nodes are punished.
        weight: λ, of the margins in the loss, at least 0.
        candidates: How many embeddings are drawn.
        kept: How many of them, the least likely ones, stand for exposure nodes.
        first_epoch: The first epoch in which they count, from 0.
        stage_: Set by `bound`.

    Raises:
        InputError: An argument breaks its rule.
    """

    t_in: float = -5.0
    t_out: float = -1.0
    weight: float = 0.1
    candidates: int = 2000
    kept: int = 100
    first_epoch: int = 20
    stage_: PreparedGraph | None = field(default=None, repr=False, compare=False)

    reads_embeddings: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.margin  # noqa: B018 - checks margins and weight
        for name in ("candidates", "kept"):
            require_whole(name, getattr(self, name), 1)
        require(self.kept <= self.candidates, "kept", f"be at most candidates, {self.candidates}", self.kept)
        require_whole("first_epoch", self.first_epoch, 0)

    @property
    def margin(self) -> EnergyMargin:
        """The objective that the synthetic nodes are exposed to."""
        return EnergyMargin(self.t_in, self.t_out, self.weight, steps=0)

    def bound(
        self, data: PreparedGraph, teach: Callable[[Objective], Tensor], task: Task = "multiclass"
    ) -> SyntheticExposure:
        """With a graph of `kept` nodes and no edges, on which the synthetic embeddings are put."""
        check_multiclass(task, self)
        x = torch.zeros(self.kept, data.x.shape[1], dtype=data.x.dtype, device=data.device)
        mask = torch.ones(self.kept, dtype=torch.bool, device=data.device)
        none = torch.empty(2, 0, dtype=torch.int64, device=data.device)
        return replace(self, stage_=prepare(SimpleNamespace(x=x, edge_index=none, mask=mask)))

    def loss(self, outputs: Outputs, exposure: Outputs | None = None, *, epoch: int = 0) -> Tensor:
        """Cross-entropy, and from `first_epoch` on the margins of training and synthetic nodes."""
        if epoch < self.first_epoch:
            return CrossEntropy().loss(outputs)
        if self.stage_ is None:
            raise InputError(f"{self!r} must know its graph; call bound(data, teach) first, as gnnsafe.train does")
        labels = masked(node_labels(outputs.graph), outputs.graph, "train_mask")
        known = masked(outputs.embeddings.detach(), outputs.graph, "train_mask")
        drawn = unlikely(known, labels, self.candidates, self.kept)
        placed = outputs.again(self.stage_, gradients=True, edit=lambda _: drawn).logits
        return self.margin.loss(outputs, Outputs(placed, self.stage_, outputs.task))


def unlikely(known: Tensor, labels: Tensor, candidates: int, kept: int) -> Tensor:
    """The least likely of many draws from N(μ_c, Σ), c the class of a node drawn at random, Σ common to all classes.

    A draw is μ_c + L ε with Σ = L Lᵀ: its likelihood falls as ‖ε‖ grows.
    """
    rows = known.double()
    sizes = torch.bincount(labels).clamp(min=1).double()
    means = rows.new_zeros(len(sizes), rows.shape[1]).index_add_(0, labels, rows) / sizes[:, None]
    centred = rows - means[labels]
    covariance = centred.T @ centred / len(rows)
    spread = covariance.diagonal().mean().clamp(min=torch.finfo(torch.float32).tiny)
    factor = torch.linalg.cholesky(covariance + RIDGE * spread * torch.eye(len(covariance)).to(rows))
    steps = torch.randn(candidates, rows.shape[1]).to(rows)
    around = torch.randint(len(labels), (candidates,)).to(labels.device)
    furthest = steps.square().sum(dim=1).topk(kept).indices
    chosen: Tensor = (means[labels[around[furthest]]] + steps[furthest] @ factor.T).to(known.dtype)
    return chosen
