"""A graph's edges, each once, and the two ways of moving them: by swapping ends, by drawing a new end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnsafe.datasets.shifts.graphs import Data

__all__ = ["EdgeList"]

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
DRAWS = 20


@dataclass(frozen=True)
class EdgeList:
    """A graph's edges `ends` [2, edges] without its self-loops, which never move; an undirected edge stands once.

    A graph is undirected when it holds every edge as often in one direction as in the other.
    """

    ends: Integers
    loops: Integers
    num_nodes: int
    undirected: bool

    @classmethod
    def of(cls, data: Data) -> EdgeList:
        """The edges of a graph."""
        source, target = edges = data.edge_index.cpu().numpy().astype(np.int64)
        num_nodes = data.x.shape[0]
        there, back = np.sort(source * num_nodes + target), np.sort(target * num_nodes + source)
        undirected = np.array_equal(there, back)
        kept = source < target if undirected else source != target
        return cls(edges[:, kept], source[source == target], num_nodes, undirected)

    def edge_index(self, *, like: Tensor) -> Tensor:
        """All edges [2, edges] by source, then target, undirected ones in both directions; typed and placed `like`."""
        both = [self.ends, self.ends[::-1]] if self.undirected else [self.ends]
        source, target = np.concatenate([*both, np.stack([self.loops, self.loops])], axis=1)
        keys = np.sort(source * self.num_nodes + target)
        return torch.from_numpy(np.stack(np.divmod(keys, self.num_nodes))).to(like)

    def swapped(self, rng: np.random.Generator) -> EdgeList:
        """Edges paired at random, a→b and c→d made a→d and c→b wherever that repeats no edge and closes no loop."""
        half = self.ends.shape[1] // 2
        ends = self.ends.take(rng.permutation(self.ends.shape[1]), axis=1)
        first, second = ends[:, :half], ends[:, half : 2 * half]
        if self.undirected:  # either end of the second may be called its target
            second = np.where(rng.random(half) < 0.5, second, second[::-1])
        crossed = np.stack([[first[0], second[0]], [second[1], first[1]]]).reshape(2, -1)
        fresh = self._fresh(crossed, self._keys(ends)).reshape(2, -1).all(axis=0)  # both edges of a pair, or neither
        ends[:, : 2 * half] = np.where(np.tile(fresh, 2), crossed, ends[:, : 2 * half])
        return replace(self, ends=ends)

    def redrawn(self, chosen: Integers, kept: Integers, rng: np.random.Generator) -> EdgeList:
        """The chosen edges with a new end drawn from all nodes, end `kept` (0 or 1) of each staying as it is.

        No self-loop, no repeated edge and none that was there before is drawn; an edge that has found no free place
        in 20 draws (its end is joined to nearly all nodes) stays as it was.
        """
        moved, taken = self.ends.copy(), self._keys(self.ends)
        for _ in range(DRAWS):
            ends = moved[:, chosen]
            ends[1 - kept, np.arange(len(chosen))] = rng.integers(self.num_nodes, size=len(chosen))
            fresh = self._fresh(ends, taken)
            moved[:, chosen[fresh]] = ends[:, fresh]
            taken = np.concatenate([taken, self._keys(ends[:, fresh])])
            chosen, kept = chosen[~fresh], kept[~fresh]
            if not chosen.size:
                break
        return replace(self, ends=moved)

    def _keys(self, ends: Integers) -> Integers:
        """One number per edge, the same for the same edge."""
        first, second = (ends.min(axis=0), ends.max(axis=0)) if self.undirected else ends
        keys: Integers = first * self.num_nodes + second
        return keys

    def _fresh(self, ends: Integers, taken: Integers) -> Booleans:
        """Which of the edges proposed are no self-loops, not among those taken, and proposed only once."""
        keys, place, times = np.unique(self._keys(ends), return_inverse=True, return_counts=True)
        taken = np.sort(taken)
        absent = np.searchsorted(taken, keys, side="left") == np.searchsorted(taken, keys, side="right")
        fresh: Booleans = ((times == 1) & absent)[place] & (ends[0] != ends[1])
        return fresh
