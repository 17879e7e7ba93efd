"""Evidence for each class, read from frozen embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.errors import is_number, require, require_known
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.classes import check_multiclass, class_members
from gnnsafe.methods.probe import check_probe, drawn, minimised, perceptron, standards, standing
from gnnsafe.outputs import Outputs
from gnnsafe.scores import saturated

__all__ = ["EvidentialProbe", "uncertain_loss"]

Measure = Literal["vacuity", "confidence"]


@dataclass
class EvidentialProbe(Method):
    """Evidence read from frozen embeddings: vacuity C / α₀, or −max_c ᾱ_c, α = 1 + softplus(MLP(h)) (Yu et al., 2025).

    EPN's probe: a perceptron on the classifier's standardised embeddings, trained on the training nodes by the expected
    cross-entropy under Dir(α) + `weight` · KL(Dir(α)‖Dir(1)). The paper's two further regularisers (EPN-reg) are not in
    it.

    Args:
        measure: "vacuity" or "confidence".
        hidden: Units of the hidden layer.
        epochs: How many passes over the training nodes.
        weight: Of the divergence from Dir(1), at least 0.
        seed: Of the first weights.

    Raises:
        InputError: An argument breaks its rule.
    """

    measure: Measure = "vacuity"
    hidden: int = 64
    epochs: int = 100
    weight: float = 0.01
    seed: int = 0
    standard_: Tensor = fitted()
    first_: Tensor = fitted()
    last_: Tensor = fitted()

    base_reach = 0
    says = "little evidence for any class"

    def __post_init__(self) -> None:
        require_known("measure", self.measure, get_args(Measure))
        check_probe(self.hidden, self.epochs, self.seed)
        require(is_number(self.weight) and 0 <= self.weight < math.inf, "weight", "be >= 0", self.weight)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> EvidentialProbe:
        """Fit the probe on the training nodes' embeddings and labels, on the CPU."""
        super().fit(outputs, y, mask)
        check_multiclass(self, outputs)
        known, classes = outputs.embeddings[mask], outputs.logits.shape[1]
        target = class_members(y, mask, classes, task=outputs.task, dtype=torch.float64).cpu()
        self.standard_ = standards(known)
        points = standing(known.detach().cpu(), self.standard_)
        random = torch.Generator(device="cpu").manual_seed(self.seed)
        weights = drawn((points.shape[1], self.hidden, classes), random)

        def loss(weights: list[Tensor]) -> Tensor:
            return uncertain_loss(1 + F.softplus(perceptron(points, *weights)), target, self.weight).mean()

        self.first_, self.last_ = minimised(loss, weights, self.epochs)
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """C / α₀, or −max_c ᾱ_c."""
        check_multiclass(self, outputs)
        evidence = F.softplus(perceptron(standing(outputs.embeddings, self.standard_), self.first_, self.last_))
        alpha = 1 + evidence
        total = alpha.sum(dim=1)
        if self.measure == "vacuity":
            return saturated(alpha.shape[1] / total)
        return saturated(-alpha.amax(dim=1) / total)


def uncertain_loss(alpha: Tensor, target: Tensor, weight: float) -> Tensor:
    """ψ(α₀) − ψ(α_y) + λ KL(Dir(α)‖Dir(1)), a number per row; `target` has a 1 at y.

    >>> alpha, target = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]])
    >>> uncertain_loss(alpha, target, 0.0)  # ψ(3) − ψ(2) = ½
    tensor([0.5000])
    """
    total = alpha.sum(dim=1)
    apart = torch.digamma(alpha) - torch.digamma(total)[:, None]
    divergence = torch.lgamma(total) - torch.lgamma(alpha).sum(dim=1) - math.lgamma(alpha.shape[1])
    return -(target * apart).sum(dim=1) + weight * (divergence + ((alpha - 1) * apart).sum(dim=1))
