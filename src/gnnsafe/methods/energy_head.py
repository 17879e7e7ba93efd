"""DeGEM's energy head on the classifier's embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.errors import is_number, require, require_whole
from gnnsafe.methods.base import Method, fitted
from gnnsafe.methods.probe import check_probe, drawn, minimised, perceptron, standards, standing
from gnnsafe.outputs import Outputs
from gnnsafe.scores import saturated

__all__ = ["EnergyHead"]

NEGATIVES = 64  # points that Langevin dynamics walk at once


@dataclass
class EnergyHead(Method):
    """Energy learnt on frozen embeddings: min E⁺ − E⁻ + E⁺² + E⁻², E⁻ of Langevin samples (Chen et al., 2025).

    DeGEM's energy head: a perceptron with one hidden layer on the classifier's standardised embeddings, fitted by
    maximum likelihood. Its negatives start again each epoch from a standard normal and take `walk` steps
    h ← h − ½η∇E + √η ε. The original also trains an encoder (a multi-hop DGI); here the embeddings are the model's.

    Args:
        hidden: Units of the hidden layer.
        epochs: How many passes over the training nodes.
        walk: Langevin steps that make a negative sample.
        step: Their size η, above 0.
        seed: Of the first weights and of the samples.

    Raises:
        InputError: An argument breaks its rule.
    """

    hidden: int = 64
    epochs: int = 100
    walk: int = 5
    step: float = 0.1
    seed: int = 0
    standard_: Tensor = fitted()
    first_: Tensor = fitted()
    last_: Tensor = fitted()

    base_reach = 0
    says = "embedding of high learnt energy"

    def __post_init__(self) -> None:
        check_probe(self.hidden, self.epochs, self.seed)
        require_whole("walk", self.walk, 0)
        require(is_number(self.step) and 0 < self.step < math.inf, "step", "be > 0", self.step)

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> EnergyHead:
        """Fit the head on the training nodes' embeddings, on the CPU."""
        super().fit(outputs, y, mask)
        known = outputs.embeddings[mask]
        self.standard_ = standards(known)
        positives = standing(known.detach().cpu(), self.standard_)
        random = torch.Generator(device="cpu").manual_seed(self.seed)
        weights = drawn((positives.shape[1], self.hidden, 1), random)

        def loss(weights: list[Tensor]) -> Tensor:
            negatives = self._negatives(positives.shape[1], [weight.detach() for weight in weights], random)
            inside, outside = (perceptron(points, *weights).squeeze(1) for points in (positives, negatives))
            return inside.mean() - outside.mean() + inside.square().mean() + outside.square().mean()

        self.first_, self.last_ = minimised(loss, weights, self.epochs)
        return self

    def _negatives(self, dimensions: int, weights: list[Tensor], random: torch.Generator) -> Tensor:
        size = (NEGATIVES, dimensions)
        points = torch.randn(size, generator=random, dtype=torch.float64, device="cpu")
        for _ in range(self.walk):
            noise = torch.randn(size, generator=random, dtype=torch.float64, device="cpu")
            points = points - 0.5 * self.step * slope(points, *weights) + math.sqrt(self.step) * noise
        return points

    def base_scores(self, outputs: Outputs) -> Tensor:
        """E(h)."""
        return saturated(perceptron(standing(outputs.embeddings, self.standard_), self.first_, self.last_).squeeze(1))


def slope(points: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """∇E of a perceptron with one output, by hand: silu'(a) = σ(a) (1 + a (1 − σ(a)))."""
    before = points @ first[:-1] + first[-1]
    sigma = before.sigmoid()
    return (sigma * (1 + before * (1 - sigma)) * last[:-1, 0]) @ first[:-1].T
