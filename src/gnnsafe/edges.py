"""The edges of a graph, and the matrices that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from gnnsafe.attention import Pattern
from gnnsafe.checks import check_edge_index, check_tensor, full_precision
from gnnsafe.devices import check_precision
from gnnsafe.errors import require
from gnnsafe.modes import version, without_modes
from gnnsafe.sparse import Matrix, matrix, row_entries
from gnnsafe.tiles import by_target

__all__ = ["Cache", "Edges", "Isolated", "as_edges"]

BY_TARGET = "by target"
INCOMING = "incoming"
IN_DEGREES, OUT_DEGREES = "in-degrees", "out-degrees"
RECENT = 4  # detectors that read one graph in turn, for each of which it keeps what they make of it
FEW_PRODUCTS = 3  # with a vector, for which edges need not be sorted

Isolated = Literal["keep", "decay"]
Result = TypeVar("Result")


class Cache:
    """What is made of something constant: built when first needed, once, whatever the number of threads."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}
        self._building = RLock()

    def __reduce__(self) -> tuple[type[Cache], tuple[()]]:
        """A copy starts with nothing: it is made again where it is wanted."""
        return Cache, ()

    def __contains__(self, key: Hashable) -> bool:
        """Whether it is there already."""
        return key in self._values

    def __call__(self, key: Hashable, build: Callable[[], Result]) -> Result:
        """What `build` gave under that key."""
        if key not in self._values:
            with self._building:
                if key not in self._values:
                    with without_modes():
                        self._values[key] = build()
        value: Result = self._values[key]
        return value

    def recent(self, kind: str, key: Hashable, build: Callable[[], Result]) -> Result:
        """The same for keys without end, such as what detectors learnt: the last few of a kind are kept."""
        with self._building:
            kept: dict[Hashable, Result] = self(kind, dict)
            kept[key] = value = kept.pop(key) if key in kept else build()
            while len(kept) > RECENT:
                del kept[next(iter(kept))]
            return value


class Edges:
    """The edges of a graph with `num_nodes` nodes, `index` [2, edges], from the first row to the second; never changed.

    Its matrices are made when first needed, and kept. Where it is not `reused`, none is made for a few
    products that are cheaper without.

    >>> edges = Edges(torch.tensor([[0, 1], [2, 2]]), 3)
    >>> edges.in_degrees.tolist()
    [0.0, 0.0, 2.0]
    """

    def __init__(self, index: Tensor, num_nodes: int, *, reused: bool = True) -> None:
        check_edge_index(index, num_nodes)
        check_precision(index.device)
        self.index, self.num_nodes, self.reused, self.cached = index, num_nodes, reused, Cache()
        self._version = version(index)

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.index.device

    def both_ways(self) -> Edges:
        """Each edge in both directions, every one once.

        >>> Edges(torch.tensor([[0, 0, 1], [1, 1, 2]]), 3).both_ways().index.tolist()
        [[0, 1, 1, 2], [1, 0, 2, 1]]
        """
        return self.cached("both ways", self._both_ways)

    @property
    def unwritten(self) -> bool:
        """Whether nothing was written into the edges since, as far as torch noticed."""
        return version(self.index) == self._version

    def check_unwritten(self) -> None:
        """Nothing was written into the edges."""
        require(
            self.unwritten,
            "edge_index",
            "be left as it was when the graph was prepared",
            "other edges",
            "prepare it again",
        )

    @property
    def in_degrees(self) -> Tensor:
        """How many edges point to each node, as float64."""
        return self.cached(IN_DEGREES, lambda: self._degrees(self.index[1]).double())

    @property
    def out_degrees(self) -> Tensor:
        """How many edges leave each node, as float64; in a part of a graph those that leave it in the whole."""
        return self.cached(OUT_DEGREES, lambda: self._degrees(self.index[0]).double())

    @property
    def hear_others(self) -> Tensor:
        """A mask of nodes to which another node points."""
        return self.cached("hear others", self._hear_others)

    def part_of(self, out_degrees: Callable[[], Tensor], in_degrees: Callable[[], Tensor] | None = None) -> None:
        """These are edges of a part of a graph: its nodes' degrees in the whole, when needed."""
        self.cached(OUT_DEGREES, out_degrees)
        if in_degrees is not None:
            self.cached(IN_DEGREES, in_degrees)

    def mean(self, dtype: torch.dtype = torch.float32, isolated: Isolated = "keep") -> Matrix:
        """D⁻¹A: row i averages over the nodes that point to i, counting each edge as often as it is given.

        A node without in-neighbours has no average: `keep` gives it its own value, `decay` gives it 0.

        >>> edges = Edges(torch.tensor([[0, 1], [2, 2]]), 3)
        >>> edges.mean().csr.to_dense().tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]
        """
        return self.cached(("mean", dtype, isolated), lambda: self._mean(dtype, isolated))

    def convolution(self, dtype: torch.dtype = torch.float32) -> Matrix:
        """Â = D̃^-½ (A + I) D̃^-½ with D̃ the in-degrees of A + I; each node has exactly one self-loop.

        >>> Edges(torch.tensor([[0], [1]]), 2).convolution(torch.float64).csr.to_dense().tolist()
        [[1.0, 0.0], [0.7071..., 0.5...]]
        """
        return self.cached(("convolution", dtype), lambda: self._convolution(dtype))

    def sum(self, dtype: torch.dtype = torch.float32) -> Matrix:
        """A + I: row i sums node i and the nodes that point to it, counting each edge as often as it is given.

        >>> Edges(torch.tensor([[0, 0], [1, 1]]), 2).sum().csr.to_dense().tolist()
        [[1.0, 0.0], [2.0, 1.0]]
        """
        return self.cached(("sum", dtype), lambda: self._sum(dtype))

    def attention(self, heads: int) -> Pattern:
        """The edges, with exactly one self-loop per node, of `heads` copies of the graph.

        Attention with many heads is attention with one on so many copies; node i's copy k is i·heads + k. A repeated
        edge counts as often as it is given.

        >>> pattern = Edges(torch.tensor([[0], [1]]), 2).attention(heads=2)
        >>> pattern.rows.tolist(), pattern.columns.tolist()
        ([0, 1, 2, 2, 3, 3], [0, 1, 0, 2, 1, 3])
        """
        return self.cached(("attention", heads), lambda: self._attention(heads))

    def in_edges(self, isolated: Isolated) -> tuple[Tensor, Tensor, Tensor]:
        """The edges by target: where each target's begin, their sources and targets; see `mean` for `isolated`."""
        starts, sources = self._to_average(isolated)
        return starts, sources, _rows(starts).long()

    def weighted(self, starts: Tensor, sources: Tensor, entries: Tensor) -> Matrix:
        """The matrix of edges by target, as `in_edges` gives them, with these entries; it is not kept."""
        return self._matrix(starts, sources, entries)

    @property
    def by_target(self) -> tuple[Tensor, Tensor]:
        """The edges in the order of a CSR matrix: where those of each target begin, and their sources."""
        return self.cached(BY_TARGET, self._by_target)

    @property
    def incoming(self) -> tuple[Tensor, Tensor]:
        """Where the incoming edges of each node begin among the numbers of all edges, which are in order of target."""
        return self.cached(INCOMING, self._incoming)

    def into(self, nodes: Tensor) -> Tensor:
        """Numbers of the edges that point to the nodes in a mask; once edges are sorted, no others are read.

        >>> Edges(torch.tensor([[0, 1, 0], [2, 1, 2]]), 3).into(torch.tensor([False, False, True])).tolist()
        [0, 2]
        """
        if not self.reused and INCOMING not in self.cached:
            return nodes[self.index[1]].nonzero().flatten()
        starts, numbers = self.incoming
        return numbers[row_entries(starts, nodes.nonzero().flatten())].long()

    def worth_a_matrix(self, products: int) -> bool:
        """Whether so many products pay for a matrix: else sums along the edges as they are cost less."""
        return self.reused or self.device.type != "cpu" or products > FEW_PRODUCTS or BY_TARGET in self.cached

    def _both_ways(self) -> Edges:
        from torch_geometric.utils import to_undirected  # seconds to import: only where it is wanted

        both: Tensor = to_undirected(self.index.long(), num_nodes=self.num_nodes)  # which multiplies node numbers
        return Edges(both.to(self.index.dtype), self.num_nodes, reused=self.reused)

    def _by_target(self) -> tuple[Tensor, Tensor]:
        if self.device.type == "cpu":
            starts, sources = (torch.from_numpy(part) for part in by_target(self.index.numpy(), self.num_nodes))
            return starts, sources
        source, target = self.index
        return _starts(self._degrees(target)), source[torch.argsort(target, stable=True)]

    def _incoming(self) -> tuple[Tensor, Tensor]:
        target, few = self.index[1], self.index.shape[1] < 2**31
        numbers = torch.argsort(target.int() if self.num_nodes < 2**31 else target, stable=True)
        return _starts(self._degrees(target)), numbers.int() if few else numbers

    def _degrees(self, targets: Tensor) -> Tensor:
        return torch.bincount(targets, minlength=self.num_nodes)

    def _hear_others(self) -> Tensor:
        source, target = self.index
        none = torch.zeros(self.num_nodes, dtype=torch.bool, device=self.device)
        return none.index_fill_(0, target[source != target].long(), value=True)

    def _matrix(self, starts: Tensor, sources: Tensor, entries: Tensor) -> Matrix:
        return matrix(starts, sources, entries, (self.num_nodes, self.num_nodes))

    def _mean(self, dtype: torch.dtype, isolated: Isolated) -> Matrix:
        starts, sources = self._to_average(isolated)
        share = (1 / starts.diff().clamp(min=1).double()).to(dtype)
        return self._matrix(starts, sources, _repeated(share, starts))

    def _to_average(self, isolated: Isolated) -> tuple[Tensor, Tensor]:
        """The edges by target; a node without any has a self-loop where it is to keep its value."""
        starts, sources = self.by_target
        return (starts, sources) if isolated == "decay" else _with_loops(starts, sources, starts.diff() == 0)

    def _convolution(self, dtype: torch.dtype) -> Matrix:
        starts, sources = self._by_target_with_loops()
        degree = starts.diff().double()
        product = _repeated(degree, starts).mul_(degree.index_select(0, sources))
        return self._matrix(starts, sources, product.rsqrt_().to(dtype))

    def _sum(self, dtype: torch.dtype) -> Matrix:
        starts, sources = _with_loops(*self.by_target, torch.ones(self.num_nodes, dtype=torch.bool, device=self.device))
        return self._matrix(starts, sources, torch.ones(len(sources), dtype=dtype, device=self.device))

    def _attention(self, heads: int) -> Pattern:
        head = torch.arange(heads, device=self.device)
        starts, sources = self._by_target_with_loops()
        ends = (sources, _rows(starts))
        source, target = ((end.long().unsqueeze(1) * heads + head).flatten() for end in ends)
        return Pattern(target, source, self.num_nodes * heads)

    def _by_target_with_loops(self) -> tuple[Tensor, Tensor]:
        """The edges by target, with exactly one self-loop per node."""
        starts, sources = self.by_target
        targets = _rows(starts)
        if bool((loops := sources == targets).any()):
            starts, sources = _starts(self._degrees(targets[~loops])).to(starts.dtype), sources[~loops]
        return _with_loops(starts, sources, torch.ones(self.num_nodes, dtype=torch.bool, device=self.device))


def _starts(sizes: Tensor) -> Tensor:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def _rows(starts: Tensor) -> Tensor:
    """The row of each entry of a CSR matrix."""
    return _repeated(torch.arange(len(starts) - 1, dtype=starts.dtype, device=starts.device), starts)


def _repeated(values: Tensor, starts: Tensor) -> Tensor:
    """Each row's value, once for each entry that the row has in a CSR matrix."""
    if values.device.type == "cpu":  # numpy takes a quarter of torch's time, and has no bfloat16
        return torch.from_numpy(full_precision(values).numpy().repeat(starts.diff().numpy()))
    return values.repeat_interleave(starts.diff())


def _with_loops(starts: Tensor, sources: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The edges by target, with a further self-loop, the last of their edges, for the chosen nodes."""
    ends = starts.clone()
    ends[1:] += chosen.cumsum(0)
    result = sources.new_empty(int(ends[-1]))
    given = torch.ones(len(result), dtype=torch.bool, device=result.device)
    places = ends[1:][chosen].long() - 1
    given[places] = False
    result.masked_scatter_(given, sources)
    result[places] = chosen.nonzero().squeeze(1).to(result.dtype)
    return ends, result


def as_edges(edges: Tensor | Edges, num_nodes: int) -> Edges:
    """Edges of so many nodes, checked to be such."""
    if isinstance(edges, Edges):
        edges.check_unwritten()
        require(edges.num_nodes == num_nodes, "edges", f"be those of {num_nodes} nodes", edges.num_nodes)
        return edges
    return Edges(check_tensor("edge_index", edges), num_nodes, reused=False)
