"""The edges of a graph, and the matrices that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from gnnsafe.attention import Pattern
from gnnsafe.checks import check_edge_index, check_tensor
from gnnsafe.errors import require
from gnnsafe.sparse import Matrix, matrix

__all__ = ["Edges", "Isolated", "Kept", "as_edges"]

Isolated = Literal["keep", "decay"]
Result = TypeVar("Result")


class Kept:
    """What is made of something constant: built when it is first asked for, once, whatever threads ask."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}
        self._building = RLock()

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        """A copy starts with nothing: it is made again where it is asked for."""
        return Kept, ()

    def __call__(self, key: Hashable, build: Callable[[], Result]) -> Result:
        """What `build` gave under that key."""
        if key not in self._values:
            with self._building:
                if key not in self._values:
                    self._values[key] = build()
        value: Result = self._values[key]
        return value


class Edges:
    """The edges of a graph with `num_nodes` nodes, `index` [2, edges], from the first row to the second; never changed.

    Its matrices are made when they are first asked for, and kept. Where it is not `reused`, none is made for a few
    products that are cheaper without.

    >>> edges = Edges(torch.tensor([[0, 1], [2, 2]]), 3)
    >>> edges.in_degrees.tolist()
    [0.0, 0.0, 2.0]
    """

    def __init__(self, index: Tensor, num_nodes: int, *, reused: bool = True) -> None:
        check_edge_index(index, num_nodes)
        self.index, self.num_nodes, self.reused, self.kept = index, num_nodes, reused, Kept()
        self._version = index._version

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.index.device

    @property
    def unwritten(self) -> bool:
        """Whether nobody has written into the edges since, as far as torch noticed."""
        return self.index._version == self._version

    def check_unwritten(self) -> None:
        """Nobody has written into the edges."""
        require(
            self.unwritten,
            "edge_index",
            "be left as it was when the graph was prepared",
            "other edges",
            "prepare it anew",
        )

    @property
    def in_degrees(self) -> Tensor:
        """How many edges point to each node, as float64."""
        return self.kept("in-degrees", lambda: self._degrees(self.index[1]).double())

    def mean(self, dtype: torch.dtype = torch.float32, isolated: Isolated = "keep") -> Matrix:
        """D⁻¹A: row i averages over the nodes that point to i, counting each edge as often as it is given.

        A node that nobody points to has no average: `keep` gives it its own value, `decay` gives it 0.

        >>> edges = Edges(torch.tensor([[0, 1], [2, 2]]), 3)
        >>> edges.mean().csr.to_dense().tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]
        """
        return self.kept(("mean", dtype, isolated), lambda: self._mean(dtype, isolated))

    def convolution(self, dtype: torch.dtype = torch.float32) -> Matrix:
        """Â = D̃^-½ (A + I) D̃^-½ with D̃ the in-degrees of A + I; each node has exactly one self-loop.

        >>> Edges(torch.tensor([[0], [1]]), 2).convolution(torch.float64).csr.to_dense().tolist()
        [[1.0, 0.0], [0.7071..., 0.5...]]
        """
        return self.kept(("convolution", dtype), lambda: self._convolution(dtype))

    def sum(self, dtype: torch.dtype = torch.float32) -> Matrix:
        """A + I: row i sums node i and the nodes that point to it, counting each edge as often as it is given.

        >>> Edges(torch.tensor([[0, 0], [1, 1]]), 2).sum().csr.to_dense().tolist()
        [[1.0, 0.0], [2.0, 1.0]]
        """
        return self.kept(("sum", dtype), lambda: self._sum(dtype))

    def attention(self, heads: int) -> Pattern:
        """The edges, with exactly one self-loop per node, of `heads` copies of the graph.

        Attention with many heads is attention with one on so many copies; node i's copy k is i·heads + k. A repeated
        edge counts as often as it is given.

        >>> pattern = Edges(torch.tensor([[0], [1]]), 2).attention(heads=2)
        >>> pattern.rows.tolist(), pattern.columns.tolist()
        ([0, 1, 2, 2, 3, 3], [0, 1, 0, 2, 1, 3])
        """
        return self.kept(("attention", heads), lambda: self._attention(heads))

    def _degrees(self, targets: Tensor) -> Tensor:
        return torch.bincount(targets, minlength=self.num_nodes)

    def _matrix(self, target: Tensor, source: Tensor, entries: Tensor) -> Matrix:
        return matrix(target, source, entries, (self.num_nodes, self.num_nodes))

    def _mean(self, dtype: torch.dtype, isolated: Isolated) -> Matrix:
        source, target = self._ends()
        degree = self._degrees(target)
        if isolated == "keep":
            alone = (degree == 0).nonzero().squeeze(1).to(source.dtype)
            source, target = torch.cat([source, alone]), torch.cat([target, alone])
        weight = (1 / degree.clamp(min=1).double()).to(dtype).index_select(0, target)
        return self._matrix(target, source, weight)

    def _convolution(self, dtype: torch.dtype) -> Matrix:
        source, target = self._ends_with_loops()
        scale = self._degrees(target).double().rsqrt()
        weight = (scale.index_select(0, source) * scale.index_select(0, target)).to(dtype)
        return self._matrix(target, source, weight)

    def _sum(self, dtype: torch.dtype) -> Matrix:
        loops = torch.arange(self.num_nodes, dtype=self.index.dtype, device=self.device)
        source, target = (torch.cat([end, loops]) for end in self.index)
        return self._matrix(target, source, torch.ones(len(source), dtype=dtype, device=self.device))

    def _attention(self, heads: int) -> Pattern:
        head = torch.arange(heads, device=self.device)
        source, target = ((end.long().unsqueeze(1) * heads + head).flatten() for end in self._ends_with_loops())
        return Pattern(target, source, self.num_nodes * heads)

    def _ends_with_loops(self) -> tuple[Tensor, Tensor]:
        source, target = self._ends()
        keep = source != target
        loops = torch.arange(self.num_nodes, dtype=source.dtype, device=self.device)
        return torch.cat([source[keep], loops]), torch.cat([target[keep], loops])

    def _ends(self) -> tuple[Tensor, Tensor]:
        """Sources and targets in 32 bits where they suffice, as kernels on the CPU want them."""
        source, target = self.index.to(torch.int32 if self.num_nodes < 2**31 else torch.int64)
        return source, target


def as_edges(edges: Tensor | Edges, num_nodes: int) -> Edges:
    """Edges of so many nodes, once they are known to be such."""
    if isinstance(edges, Edges):
        edges.check_unwritten()
        require(edges.num_nodes == num_nodes, "edges", f"be those of {num_nodes} nodes", edges.num_nodes)
        return edges
    return Edges(check_tensor("edge_index", edges), num_nodes, reused=False)
