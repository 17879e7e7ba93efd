"""Scores from logits: pure functions, one number per node, higher = more out-of-distribution.

Logits mean one softmax over the classes (`task="multiclass"`) or one sigmoid for each label (`"multilabel"`; a binary
head is one with a single label). A sigmoid is a softmax over the two logits (z, 0): a multilabel score is the sum of
the labels' own scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from gnnsafe.checks import FLOAT32_MAX, HALF, Task, check_logits, check_task, rounding_of
from gnnsafe.errors import is_number, require

__all__ = [
    "check_gamma",
    "check_temperature",
    "check_unnormalised",
    "energy",
    "entropy",
    "generalized_entropy",
    "log_probabilities",
    "max_logit",
    "max_softmax",
    "saturated",
]

TINY = torch.finfo(torch.float32).tiny
ROWS = 2**14  # at once: what logsumexp makes on its way then stays in the cache
NUMPY_TYPES = (torch.float32, torch.float64)  # that numpy has, too
FEW = 16  # classes, along which torch sums one row after the other, and numpy all rows at once


def check_temperature(temperature: float) -> None:
    """A temperature is a positive number that float32 has."""
    holds = is_number(temperature) and TINY <= temperature <= FLOAT32_MAX
    require(holds, "temperature", "be > 0 and within the range of float32", temperature)


def check_gamma(gamma: float) -> None:
    """An exponent of `generalized_entropy` lies between 0 and 1."""
    require(is_number(gamma) and 0 < gamma < 1, "gamma", "lie in (0, 1)", gamma)


def check_unnormalised(energies: Tensor) -> None:
    """Log-probabilities have no energy: it is 0 for every node, and what is left of it rounding."""
    few = energies[:10].tolist()  # which tell, usually
    energetic = any(abs(one) > HALF for one in few)
    energetic = energetic or not few or bool((energies.abs() > rounding_of(energies, HALF)).any())
    require(
        energetic, "logits", "be unnormalised to have an energy", "log-probabilities",
        "return them from before log_softmax, or use MSP",
    )  # fmt: skip


def energy(logits: Tensor, *, temperature: float = 1.0, task: Task = "multiclass") -> Tensor:
    """Free energy, E = −T log Σ_c exp(z_c / T)  (Liu et al., 2020); multilabel Σ_c −T log(1 + exp(z_c / T)).

    Args:
        logits: Unnormalised, one row per node and one column per class (or label).
        temperature: T, above 0.
        task: "multiclass", one softmax over the classes, or "multilabel", a sigmoid for each label.

    Returns:
        A score for each node; higher = more out-of-distribution.

    Raises:
        InputError: Logits are not finite numbers of shape [nodes, classes], or the temperature is not above 0.

    >>> energy(torch.tensor([[0.0, 0.0], [9.0, 0.0]])).tolist()
    [-0.6931..., -9.0001...]
    >>> energy(torch.tensor([[0.0, 0.0]]), task="multilabel").tolist()
    [-1.3862...]
    """
    check_temperature(temperature)
    temperature = float(temperature)  # torch takes no integer of more than 64 bits
    heads = _heads(logits, task)
    rows = [heads] if len(heads) <= ROWS else torch.split(heads, ROWS)
    parts = [_logsumexp(part if temperature == 1 else part.double() / temperature) for part in rows]
    free = parts[0] if len(parts) == 1 else torch.cat(parts)
    free = free if task == "multiclass" else free.sum(dim=1, dtype=torch.float64)
    return saturated(-temperature * free, logits.dtype)


def max_softmax(logits: Tensor, *, task: Task = "multiclass") -> Tensor:
    """Negated maximum softmax probability, −max_c p_c  (Hendrycks & Gimpel, 2017); multilabel −Σ_c max(p_c, 1 − p_c).

    Args:
        logits: Unnormalised, one row per node and one column per class (or label).
        task: "multiclass", one softmax over the classes, or "multilabel", a sigmoid for each label.

    Returns:
        A score for each node, from −1 (sure) up.

    Raises:
        InputError: Logits are not finite numbers of shape [nodes, classes].

    >>> max_softmax(torch.tensor([[0.0, 0.0], [9.0, 0.0]])).tolist()
    [-0.5, -0.9998...]
    """
    surest = torch.softmax(_heads(logits, task), dim=-1).amax(dim=-1)
    return -(surest if task == "multiclass" else surest.sum(dim=1))


def max_logit(logits: Tensor) -> Tensor:
    """Negated maximum logit, −max_c z_c  (Hendrycks et al., 2022), multilabel too.

    Args:
        logits: Unnormalised, one row per node and one column per class (or label).

    Returns:
        A score for each node; higher = more out-of-distribution.

    Raises:
        InputError: Logits are not finite numbers of shape [nodes, classes].

    >>> max_logit(torch.tensor([[0.0, 0.0], [9.0, 0.0]])).tolist()
    [-0.0, -9.0]
    """
    check_logits(logits)
    return -logits.amax(dim=-1)


def entropy(logits: Tensor, *, task: Task = "multiclass") -> Tensor:
    """Entropy of the predicted distribution, −Σ_c p_c log p_c, in nats; multilabel the sum of the labels' entropies.

    Args:
        logits: Unnormalised, one row per node and one column per class (or label).
        task: "multiclass", one softmax over the classes, or "multilabel", a sigmoid for each label.

    Returns:
        A score for each node, from 0 (sure) to log of the number of classes.

    Raises:
        InputError: Logits are not finite numbers of shape [nodes, classes].

    >>> entropy(torch.tensor([[0.0, 0.0], [9.0, 0.0]])).tolist()
    [0.6931..., 0.0012...]
    """
    log_p = log_probabilities(logits, task=task)
    return -(log_p.exp() * log_p).sum(dim=-1)


def generalized_entropy(logits: Tensor, *, gamma: float = 0.1, task: Task = "multiclass") -> Tensor:
    """Generalised entropy, Σ_c p_c^γ (1 − p_c)^γ  (Liu et al., 2023); multilabel over both outcomes of each label.

    Args:
        logits: Unnormalised, one row per node and one column per class (or label).
        gamma: The exponent γ, between 0 and 1: the smaller, the more small probabilities count.
        task: "multiclass", one softmax over the classes, or "multilabel", a sigmoid for each label.

    Returns:
        A score for each node; higher = more out-of-distribution.

    Raises:
        InputError: Logits are not finite numbers of shape [nodes, classes], or gamma is not between 0 and 1.

    >>> generalized_entropy(torch.tensor([[0.0, 0.0]]), gamma=0.5).tolist()
    [1.0]
    """
    check_gamma(gamma)
    check_logits(logits)
    log_p = log_probabilities(logits.double(), task=task)  # float32 does not tell 1 − p of sure predictions apart
    log_rest = torch.log(-torch.expm1(log_p))
    return (gamma * (log_p + log_rest)).exp().sum(dim=-1).to(logits.dtype)


def log_probabilities(logits: Tensor, *, task: Task = "multiclass") -> Tensor:
    """log p of every class, [nodes, classes]; multilabel of both outcomes of every label, [nodes, 2 · labels].

    >>> log_probabilities(torch.tensor([[0.0]]), task="multilabel").tolist()
    [[-0.6931..., -0.6931...]]
    """
    log_p = torch.log_softmax(_heads(logits, task), dim=-1).flatten(start_dim=1)
    return log_p.clamp(min=torch.finfo(log_p.dtype).min)  # −∞ where two logits differ by more than there are numbers


def saturated(scores: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Scores in that precision; those beyond its range become its largest number, so that finite ones stay finite.

    >>> saturated(torch.tensor([2.0, 1e300], dtype=torch.float64)).tolist()
    [2.0, 3.4028...e+38]
    """
    if scores.dtype == dtype:
        return scores
    limits = torch.finfo(dtype)
    return scores.clamp(limits.min, limits.max).to(dtype)


def _logsumexp(logits: Tensor) -> Tensor:
    """log Σ_c exp(z_c) of finite logits along the last dimension: torch's, or by numpy where that is faster.

    >>> _logsumexp(torch.tensor([[0.0, 0.0], [3e38, -3e38]])).tolist()
    [0.6931..., 3.0000...e+38]
    """
    few = logits.dim() == 2 and logits.shape[1] <= FEW
    if not few or (rows := _as_numpy(logits)) is None:
        return torch.logsumexp(logits, dim=-1)
    classes = rows.T.copy()  # in which all is done: new memory costs more than numbers do
    largest = classes.max(axis=0)
    with np.errstate(over="ignore", under="ignore"):  # a difference beyond the range of numbers has the exponential 0
        classes -= largest
        total = np.exp(classes, out=classes).sum(axis=0)
    np.log(total, out=total)
    total += largest
    return torch.from_numpy(total)


def _as_numpy(logits: Tensor) -> Any:
    """The same as numpy's array; None where numpy has no such numbers, or torch is to follow what becomes of them."""
    followed = logits.requires_grad or unpack_dual(logits).tangent is not None  # type: ignore[no-untyped-call]
    if followed or logits.device.type != "cpu" or logits.dtype not in NUMPY_TYPES:
        return None
    try:
        return logits.numpy()
    except RuntimeError:  # within a transform of torch.func
        return None


def _heads(logits: Tensor, task: Task) -> Tensor:
    """The logits of each softmax: [nodes, classes], or [nodes, labels, 2]."""
    check_logits(logits)
    check_task(task)
    if task == "multiclass":
        return logits
    return torch.stack([logits, torch.zeros_like(logits)], dim=-1)
