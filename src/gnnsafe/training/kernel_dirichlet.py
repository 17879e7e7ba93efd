"""The objective of subjective networks: evidence for each class, held near what labelled nodes nearby lend."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.checks import Task
from gnnsafe.edges import Edges, as_edges
from gnnsafe.errors import InputError, is_number, require, require_whole
from gnnsafe.graph import masked, node_labels, node_mask
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph
from gnnsafe.training.objectives import CrossEntropy, Objective, check_multiclass, cross_entropy

__all__ = ["KernelDirichlet", "kernel_prior"]

NEGLIGIBLE = 1e-6  # of the kernel's peak: hops beyond are not walked
FRONTIER = 2**24  # entries of the dense [nodes, labelled nodes] frontier that a search keeps at once
MOST_EVIDENCE = 30.0  # log; beyond it the divergence of two Dirichlets is the rounding error of its terms


@dataclass(frozen=True)
class KernelDirichlet(Objective):
    """Bayes risk of (y − p)², p ~ Dir(α), α = 1 + e^z, + λ KL(Dir(α)‖Dir(α̂)) + a KL(ᾱ‖teacher)  (Zhao et al., 2020).

    α̂ is `kernel_prior`, ᾱ = α / Σα, the teacher the same model trained by cross-entropy, and a = min(1, epoch /
    `annealing`). The risk is a mean over the training nodes, each divergence one over all nodes; the authors' code also
    divides the teacher's by the number of classes, which their formula does not.

    Args:
        weight: λ, of the divergence from the prior, at least 0.
        sigma: The kernel's width in hops, above 0.
        annealing: The epochs until the teacher counts in full.
        prior_: Set by `bound`.
        teacher_: Set by `bound`.

    Raises:
        InputError: An argument breaks its rule.
    """

    weight: float = 0.001
    sigma: float = 1.0
    annealing: int = 200
    prior_: Tensor | None = field(default=None, repr=False, compare=False)
    teacher_: Tensor | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        require(is_number(self.weight) and 0 <= self.weight < math.inf, "weight", "be >= 0", self.weight)
        require(is_number(self.sigma) and 0 < self.sigma < math.inf, "sigma", "be > 0", self.sigma)
        require_whole("annealing", self.annealing, 1)

    def bound(
        self, data: PreparedGraph, teach: Callable[[Objective], Tensor], task: Task = "multiclass"
    ) -> KernelDirichlet:
        """With the prior of this graph and the teacher's log-probabilities."""
        check_multiclass(task, self)
        y, mask = node_labels(data), node_mask(data, "train_mask")
        teacher = torch.log_softmax(teach(CrossEntropy()).double(), dim=1)
        prior = kernel_prior(data.edges, y, mask, num_classes=teacher.shape[1], sigma=self.sigma)
        return replace(self, prior_=prior, teacher_=teacher)

    def loss(self, outputs: Outputs, exposure: Outputs | None = None, *, epoch: int = 0) -> Tensor:
        """Bayes risk on the training nodes, and the two divergences over all nodes."""
        check_multiclass(outputs.task, self)
        if self.prior_ is None or self.teacher_ is None:
            raise InputError(f"{self!r} must know its graph; call bound(data, teach) first, as gnnsafe.train does")
        log_alpha = _log_alpha(outputs.logits.double())  # the divergence subtracts large terms
        known, labels = (masked(rows, outputs.graph, "train_mask") for rows in (log_alpha, node_labels(outputs.graph)))
        risk = bayes_risk(known, labels).mean()
        prior = _divergence(log_alpha.exp(), self.prior_).mean()
        mean = torch.log_softmax(log_alpha, dim=1)
        teacher = F.kl_div(self.teacher_, mean, reduction="batchmean", log_target=True)
        return risk + self.weight * prior + min(1.0, epoch / self.annealing) * teacher

    def validation(self, logits: Tensor, y: Tensor, task: Task) -> Tensor:
        """Mean of −log ᾱ_y."""
        check_multiclass(task, self)
        return cross_entropy(_log_alpha(logits), y, task)


def _log_alpha(logits: Tensor) -> Tensor:
    return F.softplus(logits.clamp(max=MOST_EVIDENCE))


def _divergence(alpha: Tensor, prior: Tensor) -> Tensor:
    return kl_divergence(Dirichlet(alpha, validate_args=False), Dirichlet(prior, validate_args=False))


def bayes_risk(log_alpha: Tensor, y: Tensor) -> Tensor:
    """Expected squared error under Dir(α), Σ_c (y_c − ᾱ_c)² + ᾱ_c (1 − ᾱ_c) / (α₀ + 1)  (Sensoy et al., 2018).

    >>> bayes_risk(torch.tensor([[1.0, 3.0]]).log(), torch.tensor([1]))  # 2/16 + 2 · 3/16 / 5
    tensor([0.2000])
    """
    mean = torch.softmax(log_alpha, dim=1)
    target = F.one_hot(y, log_alpha.shape[1]).to(mean.dtype)
    variance = mean * (1 - mean) / (log_alpha.exp().sum(dim=1, keepdim=True) + 1)
    return ((target - mean).square() + variance).sum(dim=1)


def kernel_prior(
    edge_index: Tensor | Edges, y: Tensor, mask: Tensor, *, num_classes: int, sigma: float = 1.0
) -> Tensor:
    """α̂_jc = 1 + Σ_{i labelled c} N(d_ij; 0, σ), d_ij the hops along edges from i to j  (Zhao et al., 2020).

    A breadth-first search from all labelled nodes at once, a column each, as far as the kernel is worth it.

    >>> path, first = torch.tensor([[0, 1], [1, 2]]), torch.tensor([True, False, False])
    >>> kernel_prior(path, torch.tensor([1, 0, 0]), first, num_classes=2)
    tensor([[1.0000, 1.3989],
            [1.0000, 1.2420],
            [1.0000, 1.0540]], dtype=torch.float64)
    """
    nodes = len(y)
    adjacency = as_edges(edge_index, nodes).convolution()  # its loops keep what was reached
    hops = int(sigma * math.sqrt(-2 * math.log(NEGLIGIBLE)))
    kernel = [math.exp(-0.5 * (hop / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi)) for hop in range(hops + 1)]
    prior = torch.ones(nodes, num_classes, dtype=torch.float64, device=y.device)
    for labelled in torch.split(mask.nonzero().squeeze(1), max(1, FRONTIER // nodes)):
        classes = F.one_hot(y[labelled], num_classes).float()
        reached = torch.zeros(nodes, len(labelled), device=y.device)
        reached[labelled, torch.arange(len(labelled), device=y.device)] = 1.0
        prior += kernel[0] * (reached @ classes)
        for weight in kernel[1:]:
            spread = (adjacency @ reached > 0).float()
            prior += weight * ((spread - reached) @ classes)
            reached = spread
    return prior
