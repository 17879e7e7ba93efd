"""Shifts: functions of a graph that return another one, whose `mask` says which nodes are OOD. Nothing else changes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnsafe.errors import require

__all__ = ["feature", "label", "structure"]

Data = Any  # PyG's class, whose package ships no types


def structure(data: Data, seed: int) -> Data:
    """The same nodes with edges drawn anew from a block model with as many equal blocks as classes.

    Blocks follow node order, the last takes the remainder. With density d = E / (N (N−1)), an (undirected) pair is
    joined with probability 1.5 d inside a block and 0.5 d across blocks. All nodes are OOD.
    """
    num_nodes, num_blocks = data.num_nodes, int(data.y.max()) + 1
    require(num_nodes >= max(2, num_blocks), "data", "have at least as many nodes as classes, and two", num_nodes)
    sizes = np.full(num_blocks, num_nodes // num_blocks)
    sizes[-1] += num_nodes % num_blocks
    density = data.num_edges / (num_nodes * (num_nodes - 1))
    probability = np.full((num_blocks, num_blocks), 0.5 * density)
    np.fill_diagonal(probability, 1.5 * density)
    pairs = block_model(sizes, np.minimum(probability, 1.0), np.random.default_rng(seed))
    edges = np.concatenate([pairs, pairs[::-1]], axis=1)
    edges = edges[:, np.lexsort(edges[::-1])]
    return _shifted(data, _all_nodes(data), edge_index=torch.from_numpy(edges))


def feature(data: Data, seed: int) -> Data:
    """The same edges, each node's features a blend w x_a + (1−w) x_b of two random nodes', w ~ U(0, 1). All OOD."""
    rng = np.random.default_rng(seed)
    a, b = torch.from_numpy(rng.integers(data.num_nodes, size=(2, data.num_nodes)))
    w = torch.from_numpy(rng.random((data.num_nodes, 1))).to(data.x.dtype)
    return _shifted(data, _all_nodes(data), x=w * data.x[a] + (1 - w) * data.x[b])


def label(data: Data, *, ood: set[int], exposure: set[int]) -> tuple[Data, Data, Data]:
    """The same graph thrice: ID nodes, exposure nodes and OOD nodes told apart by their class.

    The ID graph's training, validation and test masks lose the nodes of left-out classes. Features, edges and labels
    are shared by the three.
    """
    classes = set(data.y.unique().tolist())
    left_out = ood | exposure
    require(bool(ood), "ood", "name at least one class", "none")
    require(not ood & exposure, "exposure", f"share no class with ood = {sorted(ood)}", sorted(exposure))
    require(left_out < classes, "ood and exposure", f"leave at least one of {sorted(classes)}", sorted(left_out))
    inside = ~_of_class(data.y, left_out)
    kept = copy.copy(data)
    for name in ("train_mask", "val_mask", "test_mask"):
        kept[name] = data[name] & inside
    return kept, _shifted(data, _of_class(data.y, exposure)), _shifted(data, _of_class(data.y, ood))


def block_model(
    sizes: NDArray[np.int64], probability: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Undirected edges [2, edges] of a stochastic block model, in time and memory of the number of edges.

    Each pair of blocks has n possible edges, numbered: their count is binomial, and that many distinct numbers are
    drawn by drawing again whatever was drawn twice (which leaves every set of that size equally likely).
    """
    first, second = np.triu_indices(len(sizes))
    inside = first == second
    possible = np.where(inside, sizes[first] * (sizes[first] - 1) // 2, sizes[first] * sizes[second])
    wanted = rng.binomial(possible, probability[first, second])
    offset = np.concatenate([[0], np.cumsum(possible)])
    numbers = np.empty(0, dtype=np.int64)
    while True:
        block = np.searchsorted(offset, numbers, side="right") - 1
        missing = wanted - np.bincount(block, minlength=len(possible))
        if not missing.any():
            break
        block = np.repeat(np.arange(len(possible)), missing)
        numbers = np.union1d(numbers, offset[block] + rng.integers(possible[block]))
    within = numbers - offset[block]
    start = np.concatenate([[0], np.cumsum(sizes)])
    row, column = np.divmod(within, sizes[second[block]])
    row, column = np.where(inside[block], _triangle(within), (row, column))
    return np.stack([start[first[block]] + row, start[second[block]] + column])


def _triangle(number: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pair i < j that has this number when pairs are counted (0,1), (0,2), (1,2), (0,3), …"""
    j = ((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > number  # the square root may round up to the next row, or down
    j += (j + 1) * j // 2 <= number
    return np.stack([number - j * (j - 1) // 2, j])


def _shifted(data: Data, mask: Tensor, **changed: Tensor) -> Data:
    graph = copy.copy(data)
    for name in ("train_mask", "val_mask", "test_mask"):
        if name in graph:
            del graph[name]
    for name, value in {**changed, "mask": mask}.items():
        graph[name] = value
    return graph


def _all_nodes(data: Data) -> Tensor:
    return torch.ones(data.num_nodes, dtype=torch.bool)


def _of_class(y: Tensor, classes: set[int]) -> Tensor:
    return torch.isin(y, torch.tensor(sorted(classes), dtype=y.dtype))
