"""The paper's structure shift: new edges drawn from a stochastic block model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnsafe.datasets.shifts.edge_list import EdgeList
from gnnsafe.datasets.shifts.graphs import Data, TestNodes, counted, dice, shifted
from gnnsafe.errors import require
from gnnsafe.graph import node_labels
from gnnsafe.prepared import check_graph

__all__ = ["block_model", "structure"]

Integers = NDArray[np.int64]


def structure(data: Data, seed: int, *, test_nodes: TestNodes = "all") -> Data:
    """The same nodes with new edges drawn from a block model with as many equal blocks as classes.

    Blocks follow node order, the last takes the remainder. With density d = E / (N (N−1)), an (undirected) pair is
    joined with probability 1.5 d inside a block and 0.5 d across blocks. All nodes are OOD.

    Args:
        data: The graph, with `y`.
        seed: The same seed gives the same graph.
        test_nodes: "all" nodes count as OOD, or with "id-test" those alone that are ID test nodes of the original.

    Returns:
        A new graph, whose `mask` holds the nodes that count as OOD.

    Raises:
        InputError: The graph or an argument breaks a rule.
    """
    check_graph(data)
    num_nodes, num_blocks = data.x.shape[0], int(node_labels(data).max()) + 1
    require(num_blocks > 0, "y", "name at least one class, 0", num_blocks - 1)
    require(num_nodes >= max(2, num_blocks), "data", "have at least as many nodes as classes, and two", num_nodes)
    sizes = np.full(num_blocks, num_nodes // num_blocks)
    sizes[-1] += num_nodes % num_blocks
    density = data.edge_index.shape[1] / (num_nodes * (num_nodes - 1))
    probability = np.full((num_blocks, num_blocks), 0.5 * density)
    np.fill_diagonal(probability, 1.5 * density)
    pairs = block_model(sizes, np.minimum(probability, 1.0), dice(seed))
    edges = EdgeList(pairs, loops=pairs[0, :0], num_nodes=num_nodes, undirected=True)
    return shifted(data, counted(data, test_nodes), edge_index=edges.edge_index(like=data.edge_index))


def block_model(sizes: Integers, probability: NDArray[np.float64], rng: np.random.Generator) -> Integers:
    """Undirected edges [2, edges] of a stochastic block model, in time and memory of the number of edges.

    Each pair of blocks has n possible edges, numbered: their count is binomial, and that many of the numbers are drawn.
    Where they are most of the n, those left out are drawn instead.
    """
    first, second = np.triu_indices(len(sizes))
    inside = first == second
    possible = np.where(inside, sizes[first] * (sizes[first] - 1) // 2, sizes[first] * sizes[second])
    wanted = rng.binomial(possible, probability[first, second])
    start, offset = _starts(sizes), _starts(possible)
    most = wanted > possible // 2
    numbers = _distinct(offset, np.where(most, possible - wanted, wanted), rng)
    if most.any():
        every = [np.arange(offset[k], offset[k + 1]) for k in np.flatnonzero(most)]
        numbers = np.setxor1d(numbers, np.concatenate(every), assume_unique=True)
    block = np.repeat(np.arange(len(possible)), wanted)
    within = numbers - offset[block]
    row, column = np.where(inside[block], _triangle(within), np.divmod(within, sizes[second[block]]))
    return np.stack([start[first[block]] + row, start[second[block]] + column])


def _starts(sizes: Integers) -> Integers:
    """Where each of several runs of these lengths begins, and the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)])


def _distinct(offset: Integers, wanted: Integers, rng: np.random.Generator) -> Integers:
    """As many distinct numbers as wanted of each run offset[k] ≤ number < offset[k+1], in order.

    Whatever was drawn twice is drawn again, which leaves every set of that size equally likely.
    """
    numbers = np.empty(0, dtype=np.int64)
    missing = wanted
    while missing.any():
        block = np.repeat(np.arange(len(wanted)), missing)
        numbers = np.sort(np.concatenate([numbers, rng.integers(offset[block], offset[block + 1])]))
        numbers = numbers[np.diff(numbers, prepend=-1) > 0]  # np.unique, which hashes, takes ten times as long
        missing = wanted - np.diff(np.searchsorted(numbers, offset))
    return numbers


def _triangle(number: Integers) -> Integers:
    """The pair i < j that has this number when pairs are counted (0,1), (0,2), (1,2), (0,3), …"""
    j = ((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > number  # the square root may round up to the next row, or down
    j += (j + 1) * j // 2 <= number
    return np.stack([number - j * (j - 1) // 2, j])
