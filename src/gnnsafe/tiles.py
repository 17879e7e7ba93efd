"""Edges put in order for the processor's cache: in tiles for a few sums over neighbours, by target for a matrix.

To sum over the edges of a graph is to read and to write at random places, and to fetch these is what it costs. So edges
are first put into groups, in one pass that writes in order; what follows then stays within the cache. For a graph that
is seen once this is most of the work: two sums need no more order than tiles, square parts of the adjacency matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from gnnsafe.threads import in_threads

try:  # not public: should they go, what is public does the same, more slowly
    from scipy.sparse import _sparsetools

    coo_matvec: Any = _sparsetools.coo_matvec
    coo_tocsr: Any = _sparsetools.coo_tocsr
except (ImportError, AttributeError):  # pragma: no cover
    coo_matvec = coo_tocsr = None

__all__ = ["Tiles", "by_target"]

SIDE = 2**19  # nodes along a tile: what is fetched for them stays where it is fetched from fast; tiles pay from two on
ROWS = 2**14  # nodes whose incoming edges are sorted at once
EDGE_PARTS = 8  # of the edges, which are put into groups one by one: each thread needs memory for one of them, and
# numpy asks for huge pages from 4 MB on: with more parts the kernel took a third of the time to fetch small ones
FEW = 2**18  # edges that are not worth a thread: to be put into tiles
FEW_TO_SUM = 2**21  # the same, to be summed as they are; more are summed in two parts, each with totals of its own
BLOCK = 2**17  # edges that are summed at once


class Grouped(NamedTuple):
    """Some edges, group after group: those of group g are starts[g]:starts[g + 1]."""

    starts: Any
    source: Any
    target: Any

    def part(self, group: int) -> tuple[Any, Any]:
        """Sources and targets of one group."""
        here = slice(self.starts[group], self.starts[group + 1])
        return self.source[here], self.target[here]


class Tiles:
    """The edges of a graph, numpy's [2, edges] of node numbers that are known to lie in 0..num_nodes − 1.

    >>> tiles = Tiles(np.array([[0, 1, 1], [2, 2, 0]]), 3)
    >>> tiles.sums(np.array([1.0, 10.0, 100.0])).tolist()
    [10.0, 0.0, 11.0]
    """

    def __init__(self, edge_index: Any, num_nodes: int, *, side: int = SIDE) -> None:
        self.num_nodes, self.rows = num_nodes, 1 if num_nodes <= 2 * side else -(-num_nodes // side)

        def tile(source: Any, target: Any) -> Any:
            return target // side * self.rows + source // side

        tiled = self.rows > 1
        self.parts = _grouped(edge_index, tile, self.rows**2, num_nodes) if tiled else _halves(edge_index)

    def sums(self, values: Any) -> Any:
        """For each node the sum of the values of those that point to it, in the precision of the values."""
        if self.rows > 1:  # no two rows of tiles write to the same totals
            totals = np.zeros_like(values)
            in_threads(lambda row: self._add_row(self.parts, row, values, totals), range(self.rows))
            return totals
        first, *others = in_threads(lambda part: self._add_row([part], 0, values, np.zeros_like(values)), self.parts)
        return sum(others, first)

    def degrees(self) -> Any:
        """How many edges point to each node."""
        if self.rows > 1:
            return self.sums(np.ones(self.num_nodes))
        targets = [torch.from_numpy(part.target) for part in self.parts]  # torch counts faster than numpy
        first, *others = in_threads(lambda part: torch.bincount(part, minlength=self.num_nodes).numpy(), targets)
        return sum(others, first)

    def _add_row(self, parts: list[Grouped], row: int, values: Any, totals: Any) -> Any:
        ones = np.ones(min(BLOCK, max(len(part.source) for part in parts)), dtype=values.dtype)
        for tile in range(row * self.rows, (row + 1) * self.rows):
            for source, target in (part.part(tile) for part in parts):
                for start in range(0, len(source), BLOCK):
                    here = slice(start, start + BLOCK)
                    _add(target[here], source[here], ones, values, totals)
        return totals


def _add(target: Any, source: Any, ones: Any, values: Any, totals: Any) -> None:
    """Add each source's value to its target's total."""
    if coo_matvec is None:
        totals += np.bincount(target, weights=values[source], minlength=len(totals))
    else:
        coo_matvec(len(target), target, source, ones, values, totals)


def by_target(edge_index: Any, num_nodes: int, *, rows: int = ROWS) -> tuple[Any, Any]:
    """The edges sorted by target, as a CSR matrix has them: where each target's begin, and the sources.

    They keep their order within a target, and each is there as often as it is given.

    >>> starts, sources = by_target(np.array([[0, 1, 1], [2, 2, 0]]), 3)
    >>> starts.tolist(), sources.tolist()
    ([0, 1, 1, 3], [1, 0, 1])
    """
    size, groups = edge_index.shape[1], max(1, -(-num_nodes // rows))
    index = _index(max(size, num_nodes))
    if groups == 1:
        source, target = edge_index.astype(index, copy=False)
        return _sorted(source, target, (num_nodes, num_nodes))[:2]
    parts = _grouped(edge_index, lambda source, target: target // rows, groups, num_nodes)
    first = np.cumsum([part.starts for part in parts], axis=0, dtype=np.int64)[-1]  # of each group
    starts, sources = np.full(num_nodes + 1, size, index), np.empty(size, index)

    def sort(group: int) -> None:
        low, high = group * rows, min((group + 1) * rows, num_nodes)
        source, target = (np.concatenate(ends) for ends in zip(*(part.part(group) for part in parts), strict=True))
        begin, sources[first[group] : first[group + 1]], _ = _sorted(source, target - low, (high - low, num_nodes))
        starts[low:high] = begin[:-1] + first[group]

    in_threads(sort, range(groups))
    return starts, sources


def _halves(edge_index: Any) -> list[Grouped]:
    """The edges as they are, in one part or two: however many threads there are, so that sums are the same."""
    size = edge_index.shape[1]
    length = size if size <= FEW_TO_SUM else -(-size // 2)
    return [
        Grouped(np.array([0, part.shape[1]]), *map(np.ascontiguousarray, part))
        for part in (edge_index[:, start : start + length] for start in range(0, max(size, 1), max(length, 1)))
    ]


def _grouped(edge_index: Any, group: Callable[[Any, Any], Any], groups: int, num_nodes: int) -> list[Grouped]:
    """The edges, part by part, in so many groups."""
    size = edge_index.shape[1]
    length = max(FEW, -(-size // EDGE_PARTS))  # whatever the number of threads, so that sums are the same

    def part(start: int) -> Grouped:
        edges = edge_index[:, start : start + length]
        source, target = edges.astype(_index(num_nodes), copy=False)
        return Grouped(*_sorted(source, group(source, target), (groups, num_nodes), target))

    return in_threads(part, range(0, max(size, 1), length))


def _sorted(source: Any, key: Any, shape: tuple[int, int], beside: Any = None) -> tuple[Any, Any, Any]:
    """Where each key's edges begin, their sources, and what is given beside: scipy's counting sort, in COO → CSR."""
    beside = np.empty(len(key), np.int8) if beside is None else beside
    if coo_tocsr is not None:
        result = np.empty(shape[0] + 1, key.dtype), np.empty_like(source), np.empty_like(beside)
        coo_tocsr(*shape, len(key), key, source, beside, *result)
        return result
    matrix = sp.coo_array((beside, (key, source)), shape=shape)
    matrix.has_canonical_format = True  # so that it is not sorted within a row, nor repeated entries summed
    csr = matrix.tocsr()
    return csr.indptr, csr.indices, csr.data


def _index(largest: int) -> Any:
    return np.int32 if largest < 2**31 else np.int64
