"""Scores from logits: pure functions, one number per node, higher = more out-of-distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnsafe.checks import check_logits
from gnnsafe.errors import is_number, require

__all__ = ["check_temperature", "energy", "entropy", "max_logit", "max_softmax"]


def check_temperature(temperature: float) -> None:
    """A temperature is a positive number."""
    require(is_number(temperature) and 0 < temperature < float("inf"), "temperature", "be > 0", temperature)


def energy(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Free energy, E = −T log Σ_c exp(z_c / T)  (Liu et al., 2020).

    >>> energy(torch.tensor([[0.0, 0.0], [9.0, 0.0]])).tolist()
    [-0.6931..., -9.0001...]
    """
    check_temperature(temperature)
    check_logits(logits)
    return -temperature * torch.logsumexp(logits / temperature, dim=-1)


def max_softmax(logits: Tensor) -> Tensor:
    """Negated maximum softmax probability, −max_c p_c  (Hendrycks & Gimpel, 2017).

    >>> max_softmax(torch.tensor([[0.0, 0.0], [9.0, 0.0]])).tolist()
    [-0.5, -0.9998...]
    """
    check_logits(logits)
    return -torch.softmax(logits, dim=-1).amax(dim=-1)


def max_logit(logits: Tensor) -> Tensor:
    """Negated maximum logit, −max_c z_c  (Hendrycks et al., 2022).

    >>> max_logit(torch.tensor([[0.0, 0.0], [9.0, 0.0]])).tolist()
    [-0.0, -9.0]
    """
    check_logits(logits)
    return -logits.amax(dim=-1)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of the predicted distribution, −Σ_c p_c log p_c, in nats.

    >>> entropy(torch.tensor([[0.0, 0.0], [9.0, 0.0]])).tolist()
    [0.6931..., 0.0012...]
    """
    check_logits(logits)
    log_p = torch.log_softmax(logits, dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1)
