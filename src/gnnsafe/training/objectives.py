"""Objectives: what training minimises. Independent of the method that scores afterwards."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.arguments import PlainNumbers
from gnnsafe.checks import Task, full_precision
from gnnsafe.edges import Isolated
from gnnsafe.errors import InputError, is_number, require, require_whole
from gnnsafe.graph import masked, node_labels, node_mask
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph
from gnnsafe.propagation import check_propagation, mixed
from gnnsafe.scores import energy, log_probabilities

__all__ = [
    "BoundedEnergy",
    "CrossEntropy",
    "EnergyMargin",
    "Objective",
    "OutlierExposure",
    "check_multiclass",
    "cross_entropy",
    "exposure_missing",
]


class Objective(metaclass=PlainNumbers):
    """A loss on the training nodes and, where it needs them, on exposure nodes: OOD nodes seen in training."""

    needs_exposure: ClassVar[bool] = False
    """Whether the loss reads exposure nodes."""

    reads_embeddings: ClassVar[bool] = False
    """Whether it reads embeddings too, those of all nodes (its `reach` is None), or runs the model again."""

    def __init_subclass__(cls) -> None:
        """A class with another loss states its reach again."""
        if "loss" in vars(cls) and "reach" not in vars(cls):
            cls.reach = Objective.reach  # type: ignore[method-assign]

    @abstractmethod
    def loss(self, outputs: Outputs, exposure: Outputs | None = None, *, epoch: int = 0) -> Tensor:
        """One number to minimise; `outputs.graph` has `y` and `train_mask`, `exposure.graph` has `mask`.

        Args:
            outputs: The model's outputs on the training graph, with gradients.
            exposure: Those on the exposure graph, where `needs_exposure`.
            epoch: Which epoch it is, from 0.

        Returns:
            A tensor of one number.
        """

    def reach(self) -> int | None:
        """How many edges lead at most from a node whose logits the loss reads to one in its mask; None: any number.

        The graph and the logits that the loss is given may then lack all nodes farther away, and the graph's features.

        Returns:
            A number of hops, or None.
        """
        return None

    def validation(self, logits: Tensor, y: Tensor, task: Task) -> Tensor:
        """What the best epoch minimises on the validation nodes: their cross-entropy.

        Args:
            logits: Of the validation nodes.
            y: Their classes or labels.
            task: "multiclass" or "multilabel".

        Returns:
            A tensor of one number.
        """
        return cross_entropy(logits, y, task)

    def bound(self, data: PreparedGraph, teach: Callable[[Objective], Tensor], task: Task = "multiclass") -> Objective:
        """The objective for this graph, made once before training: itself, where it needs nothing made ready.

        `teach(objective)` trains a copy of the model by another objective and gives its logits.

        Args:
            data: The training graph.
            teach: Trains a copy of the model by another objective and gives its logits.
            task: "multiclass" or "multilabel".

        Returns:
            The objective to train by.
        """
        return self

    def begin_epoch(self, model: nn.Module, epoch: int) -> None:
        """Called to freeze parts of the model (`requires_grad_`), before an epoch's first layer runs.

        Args:
            model: The model that is trained.
            epoch: Which epoch begins, from 0.
        """


def cross_entropy(logits: Tensor, y: Tensor, task: Task) -> Tensor:
    """Mean of −log p_y; multilabel, over all nodes and labels."""
    if task == "multilabel":
        return F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype))
    return F.cross_entropy(logits, y)


def check_multiclass(task: Task, objective: Objective) -> None:
    """Some objectives are about one class per node."""
    require(task == "multiclass", "task", f"be 'multiclass' for {objective!r}", repr(task))


def exposure_missing(objective: Objective) -> InputError:
    """The error for an objective that needs exposure nodes and got none."""
    return InputError(
        f"'exposure' must be given for {objective!r} (got none); pass a graph of known OOD nodes with .mask, "
        "or train with CrossEntropy()"
    )


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Cross-entropy on the training nodes."""

    def loss(self, outputs: Outputs, exposure: Outputs | None = None, *, epoch: int = 0) -> Tensor:
        """Mean of −log p_y over the training nodes."""
        graph, task = outputs.graph, outputs.task
        logits, labels = (masked(values, graph, "train_mask") for values in (outputs.logits, node_labels(graph, task)))
        return cross_entropy(logits, labels, task)

    def reach(self) -> int:
        """The training nodes alone."""
        return 0


@dataclass(frozen=True)
class OutlierExposure(Objective):
    """Cross-entropy + w · mean_exposure(−mean_c log p_c): sure of nothing on OOD nodes  (Hendrycks et al., 2019).

    Args:
        weight: w, of the exposure nodes' part of the loss, at least 0.

    Raises:
        InputError: An argument breaks its rule.
    """

    weight: float = 0.5

    needs_exposure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(is_number(self.weight) and 0 <= self.weight < math.inf, "weight", "be >= 0", self.weight)

    def loss(self, outputs: Outputs, exposure: Outputs | None = None, *, epoch: int = 0) -> Tensor:
        """Cross-entropy plus the weighted cross-entropy to the uniform distribution on exposure nodes."""
        if exposure is None:
            raise exposure_missing(self)
        outside = masked(exposure.logits, exposure.graph, "mask")
        uniform = -log_probabilities(outside, task=outputs.task).mean()
        return CrossEntropy().loss(outputs) + self.weight * uniform

    def reach(self) -> int:
        """Training and exposure nodes alone."""
        return 0


@dataclass(frozen=True)
class EnergyMargin(Objective):
    """Cross-entropy + λ (mean_ID relu(E − t_in)² + mean_exposure relu(t_out − E)²)  (Liu et al., 2020).

    E is the energy after `steps` rounds of propagation, with gradients through them: GNNSafe++'s objective
    (Wu et al., 2023, eq. 8). With `steps=0` it is Energy FT's. Each mean is over its own set, as the formula says.

    Args:
        t_in: The energy above which ID nodes are punished.
        t_out: The energy below which exposure nodes are punished.
        weight: λ, of the margins in the loss, at least 0.
        steps: How often energies are propagated.
        alpha: How much of its own score a node keeps at each step, from 0 to 1.
        isolated: What becomes of a node without in-neighbours: "keep" its score, or let it "decay" by α at every step.

    Raises:
        InputError: An argument breaks its rule.

    >>> EnergyMargin(t_in=-5.0, t_out=-1.0, weight=0.1).reach()  # logits of nodes two hops away count in the loss
    2
    """

    t_in: float
    t_out: float
    weight: float
    steps: int = 2
    alpha: float = 0.5
    isolated: Isolated = "keep"

    needs_exposure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_propagation(self.steps, self.alpha, self.isolated)
        for name in ("t_in", "t_out"):
            value = getattr(self, name)
            require(is_number(value) and math.isfinite(value), name, "be a finite number", value)
        require(is_number(self.weight) and 0 <= self.weight < math.inf, "weight", "be >= 0", self.weight)

    def loss(self, outputs: Outputs, exposure: Outputs | None = None, *, epoch: int = 0) -> Tensor:
        """Cross-entropy plus the weighted margin loss."""
        if exposure is None:
            raise exposure_missing(self)
        margin = self._margin(outputs, "train_mask", 1, self.t_in) + self._margin(exposure, "mask", -1, self.t_out)
        return CrossEntropy().loss(outputs) + self.weight * margin

    def reach(self) -> int:
        """As far as energy propagates to training and exposure nodes."""
        return self.steps

    def _margin(self, outputs: Outputs, mask: str, sign: int, limit: float) -> Tensor:
        logits, graph = full_precision(outputs.logits), outputs.graph
        nodes = node_mask(graph, mask).nonzero().squeeze(1)
        means = graph.edges.mean(logits.dtype, self.isolated)
        margin: Tensor = _Margin.apply(  # type: ignore[no-untyped-call]
            logits, outputs.task, nodes, sign, limit, means, self.steps, self.alpha
        )
        return margin


class _Margin(torch.autograd.Function):
    """Mean of e_i² over some nodes i, e = relu(±(P E − t)), where P propagates and E are the energies of logits z.

    Its gradient is −p_i (Pᵀ g)_i at node i, with p the softmax (or sigmoids) of z and g = ±2 e / n. It is made on the
    way there from what is known; on small graphs autograd takes longer to note the steps than they take.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, task: Task, nodes: Tensor, sign: int, limit: float, *mix: Any) -> Tensor:
        energies = energy(logits, task=task)
        excess = mixed(energies, *mix).index_select(0, nodes).sub_(limit).mul_(sign).relu_()
        slope = torch.zeros_like(energies).index_copy_(0, nodes, excess * (-2 * sign / len(nodes)))
        means, *settings = mix
        likely = logits.sigmoid() if task == "multilabel" else (logits + energies.unsqueeze(1)).exp_()
        ctx.save_for_backward(likely.mul_(mixed(slope, means.T, *settings).unsqueeze(1)))
        return excess.dot(excess) / len(nodes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("the margin's gradient is made by hand and has none of its own; leave out create_graph")
        (slope,) = ctx.saved_tensors
        return slope * gradients[0], *[None] * 7


@dataclass(frozen=True)
class BoundedEnergy(Objective):
    """Cross-entropy + λ₂ [λ₁ Var‖z‖ / mean‖z‖ + (1−λ₁) Var(Σz) / |mean Σz|]: NODESafe  (Yang et al., 2025).

    Over the training nodes' logits z, from `first_epoch` on: bounded energies, since extreme ones spoil propagation.

    Args:
        weight: λ₂, of the spread in the loss, at least 0.
        share: λ₁, of the norms' spread in it, from 0 to 1.
        first_epoch: The first epoch in which it counts, from 0.

    Raises:
        InputError: An argument breaks its rule.
    """

    weight: float = 1.0
    share: float = 0.999
    first_epoch: int = 20

    def __post_init__(self) -> None:
        require(is_number(self.weight) and 0 <= self.weight < math.inf, "weight", "be >= 0", self.weight)
        require(is_number(self.share) and 0 <= self.share <= 1, "share", "lie in [0, 1]", self.share)
        require_whole("first_epoch", self.first_epoch, 0)

    def loss(self, outputs: Outputs, exposure: Outputs | None = None, *, epoch: int = 0) -> Tensor:
        """Cross-entropy, and from `first_epoch` on the weighted spread of the logits' norms and sums."""
        loss = CrossEntropy().loss(outputs)
        if epoch < self.first_epoch:
            return loss
        logits = masked(outputs.logits, outputs.graph, "train_mask")
        norms, sums = logits.norm(dim=1), logits.sum(dim=1)
        spread = self.share * _relative_variance(norms) + (1 - self.share) * _relative_variance(sums)
        return loss + self.weight * spread

    def reach(self) -> int:
        """The training nodes alone."""
        return 0


def _relative_variance(values: Tensor) -> Tensor:
    return values.var(correction=0) / values.mean().abs()
