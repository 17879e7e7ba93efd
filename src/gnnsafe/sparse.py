"""Constant sparse matrices of a graph: built once, multiplied often, never transposed twice.

Autograd's own backward of a CSR product transposes the matrix at every call; here a matrix carries its
transpose. And a matrix made from a graph is remembered for as long as the graph's tensors live: see
`remembered` for why what is remembered cannot be stale.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any, Literal, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
import xxhash
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnsafe.checks import check_edge_index, full_precision
from gnnsafe.hashing import content

__all__ = [
    "Held",
    "Isolated",
    "Pattern",
    "Sparse",
    "attention_pattern",
    "csr_tensor",
    "gcn_matrix",
    "in_degrees",
    "mean_matrix",
    "remembered",
    "scipy_csr",
    "sparse_enough",
    "sum_matrix",
    "torch_csr",
]

SPARSE_BELOW = 0.1  # density below which a CSR product beats the dense one on a CPU
SUM = 0  # torch's number of that mode of an embedding bag
BAG_COLUMNS = 8  # from which on an embedding bag is 1.2 to 4 times as fast as MKL's CSR product

Isolated = Literal["keep", "decay"]
Result = TypeVar("Result")


class Sparse:
    """A constant sparse matrix and its transpose; `matrix @ dense` is differentiable in `dense`.

    >>> matrix = Sparse(sp.csr_array(np.array([[0.0, 2.0], [0.0, 0.0]])))
    >>> (matrix @ torch.tensor([1.0, 10.0], dtype=torch.float64)).tolist()
    [20.0, 0.0]
    >>> (matrix.T @ torch.tensor([1.0, 10.0], dtype=torch.float64)).tolist()
    [0.0, 2.0]
    """

    def __init__(self, matrix: Any) -> None:
        self.csr = torch_csr(sp.csr_array(matrix))
        self.parts = _parts(self.csr)  # each of which torch makes anew whenever it is asked for it

    @functools.cached_property
    def T(self) -> Sparse:  # noqa: N802 - as torch and numpy call it
        """The transpose, made when it is first asked for: scores that are propagated once never do."""
        forward = scipy_csr(self.csr)
        transpose = sp.csr_array(forward.T)
        if _same(forward, transpose):
            return self
        back = Sparse(transpose)
        vars(back)["T"] = self
        return back

    def equal(self, other: Sparse) -> bool:
        """Whether both have the same entries in the same places."""
        return _same(*(scipy_csr(matrix.csr) for matrix in (self, other)))

    def __matmul__(self, dense: Tensor) -> Tensor:
        if not (dense.requires_grad and torch.is_grad_enabled()):
            return _times(self.csr, self.parts, dense)
        product: Tensor = _Product.apply(self, dense)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """Y = A X; the gradient of X is Aᵀ times the gradient of Y, itself such a product."""

    @staticmethod
    def forward(ctx: Any, matrix: Sparse, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return _times(matrix.csr, matrix.parts, dense)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix.T @ gradients[0].contiguous()


def _parts(csr: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return csr.crow_indices(), csr.col_indices(), csr.values()


def _times(csr: Tensor, parts: tuple[Tensor, Tensor, Tensor], dense: Tensor) -> Tensor:
    """A X: each row a weighted sum of rows of X, a bag of embeddings, whose float32 kernel is faster than MKL's."""
    if dense.dtype.itemsize < 4:  # there is no product in half precision
        return _times(csr, parts, dense.float()).to(dense.dtype)
    if dense.dtype != torch.float32 or dense.dim() == 1 or dense.shape[1] < BAG_COLUMNS:
        return csr @ dense
    starts, columns, entries = parts
    rows = dense.detach().contiguous()
    return torch.embedding_bag(rows, columns, starts, False, SUM, False, entries, include_last_offset=True)[0]


class Pattern:
    """Where a sparse square matrix has its entries, sorted by row; the entries themselves vary.

    An entry that is given `times` over is there once, and counts as often in an average.

    >>> pattern = Pattern(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
    >>> pattern.average(torch.tensor([2.0, 2.0, 5.0]), torch.tensor([[1.0], [3.0]])).tolist()
    [[2.0], [3.0]]
    """

    def __init__(self, rows: Any, columns: Any, size: int) -> None:
        order = np.lexsort((columns, rows))
        rows, columns = rows[order], columns[order]
        first = np.flatnonzero((np.diff(rows, prepend=-1) != 0) | (np.diff(columns, prepend=-1) != 0))
        times = np.diff(first, append=len(rows))
        rows, columns = rows[first], columns[first]
        back = np.lexsort((rows, columns))
        self.size = size
        # 32 bits are what MKL wants; they are gathered with several times as fast, too.
        self.rows, self.columns, self.back = (_int32(part) for part in (rows, columns, back))
        self.starts, self.starts_back = (_int32(_starts(part, size)) for part in (rows, columns))
        self.columns_back = _int32(rows[back])
        self.offsets = self.starts.long()
        self.times = _int32(times) if (times > 1).any() else None

    def average(self, scores: Tensor, dense: Tensor) -> Tensor:
        """Row i: Σ_j α_ij x_j with α_i the softmax of the scores of row i's entries; no row may be empty."""
        highest = torch.segment_reduce(scores.detach(), "max", offsets=self.offsets)
        weights = (scores - highest.index_select(0, self.rows)).exp()
        weights = weights if self.times is None else weights * self.times
        total = torch.segment_reduce(weights, "sum", offsets=self.offsets)
        parts = full_precision(weights), full_precision(dense)
        summed: Tensor = _WeightedSum.apply(self, *parts)  # type: ignore[no-untyped-call]
        return summed.to(dense.dtype) / total.unsqueeze(1)

    def matrix(self, entries: Tensor) -> Tensor:
        """The matrix with these entries."""
        return csr_tensor(self.starts, self.columns, entries, (self.size, self.size))

    def transpose(self, entries: Tensor) -> Tensor:
        """The transpose of the matrix with these entries."""
        return csr_tensor(
            self.starts_back, self.columns_back, entries.index_select(0, self.back), (self.size, self.size)
        )


class _WeightedSum(torch.autograd.Function):
    """Y = A X; the gradient of X is Aᵀ times that of Y, the gradient of A_ij the product of Y_i's and X_j."""

    @staticmethod
    def forward(ctx: Any, pattern: Pattern, entries: Tensor, dense: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(entries, dense)
        matrix = pattern.matrix(entries)
        return _times(matrix, _parts(matrix), dense)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        entries, dense = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        sampled = torch.sparse.sampled_addmm(ctx.pattern.matrix(entries), gradient, dense.T, beta=0.0)
        transpose = ctx.pattern.transpose(entries)
        return None, sampled.values(), _times(transpose, _parts(transpose), gradient)


def _int32(array: Any) -> Tensor:
    return torch.from_numpy(array.astype(np.int32))


def _starts(rows: Any, size: int) -> Any:
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=size))])


def torch_csr(matrix: Any) -> Tensor:
    """Scipy's CSR as a tensor, without a copy."""
    # scipy takes 32-bit indices wherever they suffice: half the index traffic, and what MKL wants.
    starts, columns, entries = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return csr_tensor(starts, columns, entries, matrix.shape)


def csr_tensor(starts: Tensor, columns: Tensor, entries: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A CSR tensor of parts that are known to fit."""
    return torch.sparse_csr_tensor(starts, columns, entries, size=shape, check_invariants=False)


with warnings.catch_warnings():  # here, since filters belong to all threads: torch says once that CSR is in beta
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
    csr_tensor(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), torch.zeros(0), (0, 0))


def _same(a: Any, b: Any) -> bool:
    pairs = ((a.indptr, b.indptr), (a.indices, b.indices), (a.data, b.data))
    return a.shape == b.shape and all(np.array_equal(left, right) for left, right in pairs)


_held: ContextVar[dict[int, Hashable]] = ContextVar("held", default={})  # noqa: B039 - never written to


class Held:
    """Within it these tensors are taken to have the content that they had when it was made: they are not read again."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors
        self.known = {id(tensor): _content(tensor) for tensor in tensors}

    def __enter__(self) -> None:
        self.token = _held.set(self.known)

    def __exit__(self, *_: object) -> None:
        _held.reset(self.token)


def _content(tensor: Tensor) -> Hashable:
    tensor = tensor.detach()
    if tensor.layout == torch.sparse_csr:
        return (tensor.shape, *map(_content, _parts(tensor)))
    return tensor.dtype, tensor.shape, xxhash.xxh3_128_digest(content(tensor))


def remembered(build: Callable[..., Result]) -> Callable[..., Result]:
    """Remember `build(*tensors, **options)` for as long as the tensors live and keep their content.

    A hit is confirmed by a 128-bit hash of the tensors' bytes (one read of them), not by their
    identity or version counter: a write through a numpy view, an in-place edit or another tensor at the same
    address can never be answered with another graph's matrix. What is remembered is freed with its tensors.
    """
    memory: dict[Hashable, tuple[Hashable, Result, list[weakref.ref[Tensor]]]] = {}

    @functools.wraps(build)
    def lookup(*tensors: Tensor, **options: Hashable) -> Result:
        key = (*map(id, tensors), *options.items())
        known = _held.get()
        held = tuple(known.get(id(tensor)) or _content(tensor) for tensor in tensors)
        found = memory.get(key)  # once: another thread may take it away
        if found is not None and found[0] == held:
            return found[1]
        if known:
            held = tuple(map(_content, tensors))  # what it is made of now
        result = build(*tensors, **options)
        alive = [weakref.ref(tensor, lambda _: memory.pop(key, None)) for tensor in tensors]
        memory[key] = (held, result, alive)
        return result

    return lookup


def sparse_enough(x: Tensor) -> bool:
    """Whether so few entries differ from zero that a sparse matrix is the better one."""
    entries = x.values() if x.layout == torch.sparse_csr else x
    return int(torch.count_nonzero(entries)) < SPARSE_BELOW * x.numel()


def scipy_csr(x: Tensor) -> Any:
    """A dense or CSR tensor as scipy's CSR, the latter without a copy unless in half precision, which scipy has not."""
    x = full_precision(x)
    if x.layout == torch.strided:
        return sp.csr_array(x.numpy())
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return sp.csr_array(parts, shape=(x.shape[0], x.shape[1]))


def in_degrees(edge_index: Tensor, num_nodes: int) -> Tensor:
    """How many edges point to each node, as float64.

    >>> in_degrees(torch.tensor([[0, 1], [2, 2]]), 3).tolist()
    [0.0, 0.0, 2.0]
    """
    return torch.bincount(edge_index[1], minlength=num_nodes).double()


def _numpy_dtype(dtype: torch.dtype) -> Any:
    return full_precision(torch.empty(0, dtype=dtype)).numpy().dtype


@remembered
def mean_matrix(edge_index: Tensor, *, num_nodes: int, dtype: torch.dtype, isolated: Isolated) -> Sparse:
    """D⁻¹A: row i averages over the nodes that point to i, counting each edge as often as it is given.

    A node that nobody points to has no average: `keep` gives it its own value, `decay` gives it 0.

    >>> mean_matrix(torch.tensor([[0, 1], [2, 2]]), num_nodes=3, dtype=torch.float32,
    ...             isolated="keep").csr.to_dense().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]
    """
    check_edge_index(edge_index, num_nodes)
    source, target = _ends(edge_index, num_nodes)
    degree = np.bincount(target, minlength=num_nodes)
    if isolated == "keep":
        alone = np.flatnonzero(degree == 0).astype(source.dtype)
        source, target = np.concatenate([source, alone]), np.concatenate([target, alone])
    weight = (1 / np.maximum(degree, 1)).astype(_numpy_dtype(dtype))[target]
    return Sparse(sp.coo_array((weight, (target, source)), shape=(num_nodes, num_nodes)).tocsr())


@remembered
def sum_matrix(edge_index: Tensor, *, num_nodes: int, dtype: torch.dtype) -> Sparse:
    """A + I: row i sums node i and the nodes that point to it, counting each edge as often as it is given.

    >>> sum_matrix(torch.tensor([[0, 0], [1, 1]]), num_nodes=2, dtype=torch.float32).csr.to_dense().tolist()
    [[1.0, 0.0], [2.0, 1.0]]
    """
    check_edge_index(edge_index, num_nodes)
    source, target = (np.concatenate([end, np.arange(num_nodes)]) for end in edge_index.numpy())
    ones = np.ones(len(source), dtype=_numpy_dtype(dtype))
    return Sparse(sp.coo_array((ones, (target, source)), shape=(num_nodes, num_nodes)).tocsr())


@remembered
def gcn_matrix(edge_index: Tensor, *, num_nodes: int, dtype: torch.dtype) -> Sparse:
    """Â = D̃^-½ (A + I) D̃^-½ with D̃ the in-degrees of A + I; each node has exactly one self-loop.

    >>> gcn_matrix(torch.tensor([[0], [1]]), num_nodes=2, dtype=torch.float64).csr.to_dense().tolist()
    [[1.0, 0.0], [0.7071..., 0.5...]]
    """
    source, target = _with_loops(edge_index, num_nodes)
    scale = np.bincount(target, minlength=num_nodes) ** -0.5
    weight = (scale[source] * scale[target]).astype(_numpy_dtype(dtype))
    return Sparse(sp.coo_array((weight, (target, source)), shape=(num_nodes, num_nodes)).tocsr())


@remembered
def attention_pattern(edge_index: Tensor, *, num_nodes: int, heads: int) -> Pattern:
    """The edges, with exactly one self-loop per node, of `heads` copies of the graph; node i's copy k is i·heads + k.

    Attention with many heads is attention with one on so many copies. A repeated edge counts as often as it is given.

    >>> pattern = attention_pattern(torch.tensor([[0], [1]]), num_nodes=2, heads=2)
    >>> pattern.rows.tolist(), pattern.columns.tolist()
    ([0, 1, 2, 2, 3, 3], [0, 1, 0, 2, 1, 3])
    """
    source, target = _with_loops(edge_index, num_nodes)
    source, target = ((end[:, None].astype(np.int64) * heads + np.arange(heads)).ravel() for end in (source, target))
    return Pattern(target, source, num_nodes * heads)


def _with_loops(edge_index: Tensor, num_nodes: int) -> tuple[Any, Any]:
    check_edge_index(edge_index, num_nodes)
    source, target = _ends(edge_index, num_nodes)
    keep, loops = source != target, np.arange(num_nodes, dtype=source.dtype)
    return np.concatenate([source[keep], loops]), np.concatenate([target[keep], loops])


def _ends(edge_index: Tensor, num_nodes: int) -> Any:
    """Sources and targets in 32 bits where they suffice, as scipy wants them: it would make a copy of its own."""
    return edge_index.numpy().astype(np.int32 if num_nodes < 2**31 else np.int64, copy=False)
