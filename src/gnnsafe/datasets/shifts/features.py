"""Shifts of the features: the paper's blends of two nodes, and noise of a strength to be set."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gnnsafe.checks import check_finite, full_precision
from gnnsafe.datasets.shifts.graphs import Data, TestNodes, counted, dense_features, dice, shifted
from gnnsafe.errors import is_number, require, require_known
from gnnsafe.prepared import check_graph
from gnnsafe.sparse import scipy_csr, torch_csr

__all__ = ["blends", "feature", "feature_noise"]

Kind = Literal["gaussian", "bernoulli"]
ROWS = 1024  # that are blended at a time


def feature(data: Data, seed: int, *, test_nodes: TestNodes = "all") -> Data:
    """The same edges, each node's features a blend w x_a + (1−w) x_b of two random nodes', w ~ U(0, 1). All OOD.

    Args:
        data: The graph.
        seed: The same seed gives the same graph.
        test_nodes: "all" nodes count as OOD, or with "id-test" those alone that are ID test nodes of the original.

    Returns:
        A new graph, whose `mask` holds the nodes that count as OOD.

    Raises:
        InputError: The graph or an argument breaks a rule.

    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(x=torch.eye(4), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> shifted_graph = feature(data, 0)
    >>> shifted_graph.x.shape, shifted_graph.mask.tolist()
    (torch.Size([4, 4]), [True, True, True, True])
    """
    check_graph(data)
    return shifted(data, counted(data, test_nodes), x=blends(data.x, data.x.shape[0], dice(seed)))


def feature_noise(
    data: Data, seed: int, *, kind: Kind = "gaussian", strength: float = 0.5, test_nodes: TestNodes = "all"
) -> Data:
    """The same edges, features with noise: x + s σ N(0, 1), or bags of words redrawn entry by entry. All OOD.

    Gaussian: σ is the standard deviation of all entries of x, s ≥ 0 the strength. Bernoulli: with d the share of
    entries present (not 0), each entry is redrawn with probability s ≤ 1, to be present with probability d. So an
    absent one appears with probability s d, a present one goes with probability s (1−d), and d stays on average.
    An entry that appears takes the mean of those present in its row (of all, where the row has none); where all rows
    sum to 1, they do again.

    Args:
        data: The graph.
        seed: The same seed gives the same graph.
        kind: "gaussian" or "bernoulli".
        strength: s, at least 0; of "bernoulli" at most 1.
        test_nodes: "all" nodes count as OOD, or with "id-test" those alone that are ID test nodes of the original.

    Returns:
        A new graph, whose `mask` holds the nodes that count as OOD.

    Raises:
        InputError: The graph or an argument breaks a rule.
    """
    x = dense_features(data)
    require_known("kind", kind, get_args(Kind))
    noise = {"gaussian": _gaussian, "bernoulli": _bernoulli}[kind]
    return shifted(data, counted(data, test_nodes), x=noise(x, strength, dice(seed)))


def blends(x: Tensor, count: int, rng: np.random.Generator) -> Tensor:
    """`count` rows w x_a + (1−w) x_b of two random rows of x, w ~ U(0, 1); of sparse ones, sparse."""
    a, b = torch.from_numpy(rng.integers(x.shape[0], size=(2, count)))
    w = torch.from_numpy(rng.random((count, 1))).to(x.dtype)
    if x.layout == torch.sparse_csr:
        rows, first = scipy_csr(x.cpu()), w.squeeze(1).numpy()
        mixed = sp.diags_array(first) @ rows[a.numpy()] + sp.diags_array(1 - first) @ rows[b.numpy()]
        return torch_csr(mixed).to(x.device)
    a, b, w = a.to(x.device), b.to(x.device), w.to(x.device)
    blended = x[a].mul_(w)
    for part in torch.split(torch.arange(count, device=x.device), ROWS):  # Coauthor-CS has half a gigabyte of features
        blended[part[0] : part[-1] + 1].addcmul_(x[b[part]], 1 - w[part])
    return blended


def _gaussian(x: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    require(is_number(strength) and 0 <= strength < float("inf"), "strength", "be >= 0", strength)
    entries = full_precision(x).cpu().numpy()
    with np.errstate(over="ignore"):
        deviation = float(entries.std())  # torch's depends on the number of threads in its last bit
    if not math.isfinite(deviation):  # the squares of large features
        deviation = float(entries.std(dtype=np.float64))
    noise = torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32)).to(x)
    noisy = x + strength * deviation * noise
    check_finite("features with noise", noisy)
    return noisy


def _bernoulli(x: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    require(is_number(strength) and 0 <= strength <= 1, "strength", "lie in [0, 1]", strength)
    present = x != 0
    words = present.sum(dim=1, keepdim=True)
    density = int(words.sum()) / max(x.numel(), 1)
    bag = 0 < density < 1 and float(x.min()) >= 0
    require(bag, "x", "be a bag of words: no entry < 0, some 0 and some not", f"a share of {density:.3g} not 0")
    sums = _row_sums(x)
    filling = torch.where(words > 0, sums / words.clamp(min=1), sums.sum() / words.sum()).to(x.dtype)
    chance = torch.from_numpy(rng.random(x.shape, dtype=np.float32)).to(x.device)
    redrawn = torch.where(present, x, filling).masked_fill_(chance >= strength * density, 0)
    noisy = torch.where(chance < strength, redrawn, x)
    if torch.all((words == 0) | ((sums - 1).abs() < 1e-4)):
        noisy /= _row_sums(noisy).clamp(min=torch.finfo(x.dtype).tiny)  # a row may have lost all its words
    return noisy


def _row_sums(x: Tensor) -> Tensor:
    sums = full_precision(x).cpu().numpy().sum(axis=1, keepdims=True)  # torch's, too, depend on its threads
    return torch.from_numpy(sums).to(x.device)
