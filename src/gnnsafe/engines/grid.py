"""Edges in files, a grid of them: those from one range of nodes to another in each, sorted by target.

A sum over neighbours then needs one range of sources and one of targets in memory, whatever the size of the graph
(Zhu et al., 2015, GridGraph).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.engines.columns import ColumnFile, spans
from gnnsafe.engines.engine import COMING, LEAVING
from gnnsafe.tiles import by_target

__all__ = ["EdgeGrid", "GridWriter"]

CHUNK = 2**22  # edges that are summed at once: what is gathered for them is small beside the ranges


@dataclass(frozen=True)
class EdgeGrid:
    """The edges of `nodes` nodes but self-loops: cell (t, s) has those from the s-th range of nodes to the t-th."""

    folder: Path
    nodes: int
    targets: int
    """Nodes in a range of targets."""
    sources: int

    def sums(self, values: ColumnFile, target: tuple[int, int], held: dict[int, Tensor]) -> Tensor:
        """For a range of targets the sum of the values of those that point to them, one range of sources at a time.

        Args:
            values: What is summed.
            target: Where the range starts and stops.
            held: A range of sources that is still in memory, by its number; it is kept in there.
        """
        low, high = target
        wide = values.column.dtype
        total = torch.zeros(high - low, values.column.width, dtype=getattr(torch, wide))
        for number, (start, stop) in enumerate(spans(self.nodes, self.sources)):
            if number not in held:
                held.clear()
                held[number] = values.rows(start, stop)
            self._add(total, held[number], low // self.targets, number)
        return total

    def silence(self, silent: Any) -> Any:
        """Take away the edges from nodes in a mask; returns how many point to each node then."""
        counts = np.zeros(self.nodes, dtype=np.int32)
        for row, (low, high) in enumerate(spans(self.nodes, self.targets)):
            for column, (start, _) in enumerate(spans(self.nodes, self.sources)):
                paths = [self.folder / f"{name}-{row}-{column}" for name in ("starts", "sources")]
                starts, sources = np.fromfile(paths[0], np.int64), np.fromfile(paths[1], np.int32)
                heard = ~silent[start + sources.astype(np.int64)]
                starts = np.concatenate([[0], np.cumsum(heard)])[starts]
                starts.astype(np.int64).tofile(paths[0])
                sources[heard].tofile(paths[1])
                counts[low:high] += np.diff(starts).astype(np.int32)
        return counts

    def _add(self, total: Tensor, values: Tensor, row: int, column: int) -> None:
        starts = np.fromfile(self.folder / f"starts-{row}-{column}", np.int64)
        path, place = self.folder / f"sources-{row}-{column}", 0
        while place < len(starts) - 1:
            stop = int(np.searchsorted(starts, starts[place] + CHUNK, side="right")) - 1
            stop = max(stop, place + 1)  # a node with more edges than that is taken whole
            first, last = int(starts[place]), int(starts[stop])
            sources = np.fromfile(path, np.int32, last - first, offset=4 * first)
            total[place:stop] += _summed(values, sources, starts[place : stop + 1] - first)
            place = stop


def _summed(values: Tensor, sources: Any, starts: Any) -> Tensor:
    """Row i: the sum of values[sources[starts[i] : starts[i + 1]]]."""
    if values.dtype == torch.float32 and values.shape[1] > 1:
        index, offsets = torch.from_numpy(sources), torch.from_numpy(starts.astype(np.int32))
        return F.embedding_bag(index, values, offsets, mode="sum", include_last_offset=True)
    ones = np.ones(len(sources), dtype=values.numpy().dtype)
    matrix = sp.csr_array((ones, sources, starts.astype(np.int32)), shape=(len(starts) - 1, len(values)))
    return torch.from_numpy(matrix @ values.numpy())


class GridWriter:
    """Takes edges as they come, and writes the grid; also counts them by target."""

    def __init__(self, folder: Path, nodes: int, *, targets: int, sources: int, both_ways: bool) -> None:
        self.grid = EdgeGrid(folder, nodes, targets, sources)
        self.both_ways = both_ways
        self.columns = -(-nodes // sources)
        self.cells = -(-nodes // targets) * self.columns
        self.loops = np.zeros(nodes, dtype=np.int32)
        self._open = [(folder / f"cell-{cell}").open("wb") for cell in range(self.cells)]

    def __enter__(self) -> GridWriter:
        return self

    def __exit__(self, *error: object) -> None:
        for stream in self._open:
            stream.close()

    def add(self, source: Any, target: Any) -> None:
        """Some more edges, numbers of nodes."""
        if (loop := source == target).any():
            np.add.at(self.loops, source[loop], 1)
            source, target = source[~loop], target[~loop]
        if self.both_ways:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
        pairs = np.empty((len(source), 2), dtype=np.int32)
        pairs[:, 0], pairs[:, 1] = source % self.grid.sources, target % self.grid.targets
        if self.cells == 1:
            self._open[0].write(pairs.data)
            return
        cell = target // self.grid.targets * self.columns + source // self.grid.sources
        order = np.argsort(cell.astype(np.int16) if self.cells < 2**15 else cell, kind="stable")
        ends = np.cumsum(np.bincount(cell, minlength=self.cells))
        pairs = pairs[order]
        for number, (stop, size) in enumerate(zip(ends, np.diff(ends, prepend=0), strict=True)):
            if size:
                self._open[number].write(pairs[stop - size : stop].data)

    def finish(self, advance: Callable[[], None], *, leaving: bool = False) -> tuple[EdgeGrid, dict[str, Any]]:
        """The grid, and for each node how many edges point to it from others, from itself, and leave it for others."""
        counts = np.zeros(self.grid.nodes, dtype=np.int32)
        left = np.zeros(self.grid.nodes if leaving else 0, dtype=np.int32)
        for number, stream in enumerate(self._open):
            stream.close()
            path = self.grid.folder / f"cell-{number}"
            row, column = divmod(number, self.columns)
            low = row * self.grid.targets
            rows = min(self.grid.targets, self.grid.nodes - low)
            starts, sources = self._sorted(path, rows)
            path.unlink()
            counts[low : low + rows] += np.diff(starts).astype(np.int32)
            if leaving:
                place = column * self.grid.sources
                found = np.bincount(sources)
                left[place : place + len(found)] += found.astype(np.int32)
            starts.astype(np.int64).tofile(self.grid.folder / f"starts-{row}-{column}")
            sources.astype(np.int32, copy=False).tofile(self.grid.folder / f"sources-{row}-{column}")
            advance()
        loops = np.minimum(self.loops, 1) if self.both_ways else self.loops
        return self.grid, {"count": counts, "loops": loops, **({LEAVING: left, COMING: counts} if leaving else {})}

    def _sorted(self, path: Path, rows: int) -> tuple[Any, Any]:
        pairs = np.fromfile(path, np.int32).reshape(-1, 2).T
        if self.both_ways:  # repeated edges count once
            keys = np.unique(pairs[1].astype(np.int64) * self.grid.sources + pairs[0])
            pairs = np.stack(np.divmod(keys, self.grid.sources)[::-1])
        starts, sources = by_target(pairs, max(rows, self.grid.sources))
        return starts[: rows + 1], sources
