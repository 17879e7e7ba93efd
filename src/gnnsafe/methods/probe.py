"""A small perceptron on frozen embeddings, fitted on training nodes: what energy heads and evidential probes share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.errors import require_seed, require_whole
from gnnsafe.modes import without_modes

__all__ = ["check_probe", "drawn", "minimised", "perceptron", "standards", "standing"]

RATE = 0.01  # of Adam
DECAYS = (0.9, 0.999)
LEAST_SPREAD = 1e-6  # of a dimension, as a share of the widest: less than that is rounding


def check_probe(hidden: int, epochs: int, seed: int) -> None:
    """The rules for a probe's size and training."""
    require_whole("hidden", hidden, 1)
    require_whole("epochs", epochs, 1)
    require_seed(seed)


def standards(embeddings: Tensor) -> Tensor:
    """Mean and standard deviation of every dimension, [2, dimensions], float64, on the CPU; one that is constant has 1.

    >>> standards(torch.tensor([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[2.0, 5.0], [1.0, 1.0]]
    """
    rows = embeddings.detach().double().cpu()
    spread = rows.std(dim=0, correction=0)
    return torch.stack([rows.mean(dim=0), spread.where(spread > LEAST_SPREAD * spread.max().clamp(min=1e-300), 1.0)])


def standing(embeddings: Tensor, standard: Tensor) -> Tensor:
    """Embeddings in these units, float64."""
    return (embeddings.double() - standard[0]) / standard[1]


def drawn(sizes: tuple[int, int, int], random: torch.Generator) -> list[Tensor]:
    """The two matrices of a perceptron, each with its bias as the last row; Glorot uniform, biases 0."""
    matrices = []
    for rows, columns in ((sizes[0], sizes[1]), (sizes[1], sizes[2])):
        bound = (6 / (rows + columns)) ** 0.5
        weight = torch.rand(rows, columns, generator=random, dtype=torch.float64, device="cpu")
        matrices.append(F.pad(bound * (2 * weight - 1), (0, 0, 0, 1)))
    return matrices


def perceptron(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """silu(x W₁ + b₁) W₂ + b₂, [rows, outputs]."""
    return F.silu(x @ first[:-1] + first[-1]) @ last[:-1] + last[-1]


def minimised(loss: Callable[[list[Tensor]], Tensor], weights: list[Tensor], epochs: int) -> list[Tensor]:
    """The weights after so many steps of Adam; torch's own keeps its counts on whatever device is the default."""
    first, second = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    with without_modes(), torch.enable_grad():
        for epoch in range(1, epochs + 1):
            leaves = [weight.detach().requires_grad_() for weight in weights]
            slopes = torch.autograd.grad(loss(leaves), leaves)
            for moment, kept, values in ((first, DECAYS[0], slopes), (second, DECAYS[1], [s * s for s in slopes])):
                for number, value in enumerate(values):
                    moment[number] = torch.lerp(value, moment[number], kept)
            weights = [
                weight - RATE * (m / (1 - DECAYS[0] ** epoch)) / ((v / (1 - DECAYS[1] ** epoch)).sqrt() + 1e-8)
                for weight, m, v in zip(weights, first, second, strict=True)
            ]
    return [weight.detach() for weight in weights]
