"""Constant sparse matrices: built once, multiplied often, never transposed twice.

Autograd's own backward of a sparse product transposes the matrix at every call; here a matrix carries its transpose. On
the CPU products are MKL's and embedding bags; on other devices they are plain torch.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gnnsafe.checks import full_precision
from gnnsafe.modes import without_autocast
from gnnsafe.once import once
from gnnsafe.threads import in_threads

__all__ = [
    "Gathered",
    "Matrix",
    "Sparse",
    "csr_parts",
    "csr_tensor",
    "csr_times",
    "density",
    "matrix",
    "scipy_csr",
    "sparse_enough",
    "torch_csr",
]

SPARSE_BELOW = 0.1  # density below which a CSR product beats the dense one on a CPU
SUM = 0  # torch's number of that mode of an embedding bag
BAG_COLUMNS = 4  # from which on an embedding bag is 1.2 to 4 times as fast as MKL's CSR product
SAMPLE = 2**17  # entries of dense features of which their density is known well enough
BLOCK = 2**22  # entries of dense features that a thread looks through at once: with fewer, threads wait for each other
CSR_DEVICES = ("cpu", "cuda")  # that have products with CSR matrices


class Matrix(ABC):
    """A constant sparse matrix and its transpose, on one device; `matrix @ dense` is differentiable in `dense`."""

    shape: tuple[int, int]

    @property
    @abstractmethod
    def T(self) -> Matrix:  # noqa: N802 - as torch and numpy call it
        """The transpose, made when first needed: scores that are propagated once never do."""

    @abstractmethod
    def times(self, dense: Tensor) -> Tensor:
        """The product, without gradients."""

    def __matmul__(self, dense: Tensor) -> Tensor:
        if not (dense.requires_grad and torch.is_grad_enabled()):
            return self.times(dense)
        product: Tensor = _Product.apply(self, dense)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """Y = A X; the gradient of X is Aᵀ times the gradient of Y, itself such a product."""

    @staticmethod
    def forward(ctx: Any, matrix: Matrix, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix.times(dense)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix.T @ gradients[0].contiguous()


class Sparse(Matrix):
    """A matrix on the CPU, from scipy's or a CSR tensor.

    >>> matrix = Sparse(sp.csr_array(np.array([[0.0, 2.0], [0.0, 0.0]])))
    >>> (matrix @ torch.tensor([1.0, 10.0], dtype=torch.float64)).tolist()
    [20.0, 0.0]
    >>> (matrix.T @ torch.tensor([1.0, 10.0], dtype=torch.float64)).tolist()
    [0.0, 2.0]
    """

    def __init__(self, matrix: Any) -> None:
        self.csr = matrix if isinstance(matrix, Tensor) else torch_csr(sp.csr_array(matrix))
        self.shape = (self.csr.shape[0], self.csr.shape[1])
        self.parts = csr_parts(self.csr)  # each of which torch makes again whenever it is asked for it

    @once
    def T(self) -> Sparse:  # noqa: N802 - as torch and numpy call it
        """The transpose; itself where it is the same."""
        forward = scipy_csr(self.csr)
        transpose = sp.csr_array(forward.T)  # whose columns are sorted, as those of the matrix need not be
        if _same(transpose, forward if forward.has_sorted_indices else sp.csr_array(transpose.T)):
            return self
        back = Sparse(transpose)
        vars(back)["T"] = self
        return back

    def times(self, dense: Tensor) -> Tensor:
        """The product, without gradients."""
        return csr_times(self.csr, self.parts, dense)

    def equal(self, other: Sparse) -> bool:
        """Whether both have the same entries in the same places."""
        return _same(*(scipy_csr(matrix.csr) for matrix in (self, other)))


class Gathered(Matrix):
    """A matrix on any device, as its entries sorted by row.

    >>> matrix = Gathered(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([2.0, 3.0]), (1, 2))
    >>> (matrix @ torch.tensor([[1.0], [10.0]])).tolist()
    [[32.0]]
    """

    def __init__(self, rows: Tensor, columns: Tensor, entries: Tensor, shape: tuple[int, int]) -> None:
        order = torch.argsort(rows, stable=True)
        self.rows, self.columns, self.entries = rows[order], columns[order], entries[order]
        self.shape = shape
        self.csr: Tensor | None = None
        if rows.device.type in CSR_DEVICES:
            starts = torch.zeros(shape[0] + 1, dtype=torch.int64, device=rows.device)
            starts[1:] = torch.bincount(rows, minlength=shape[0]).cumsum(0)
            self.csr = csr_tensor(starts, self.columns.long(), self.entries, shape)

    @once
    def T(self) -> Gathered:  # noqa: N802 - as torch and numpy call it
        """The transpose."""
        back = Gathered(self.columns, self.rows, self.entries, self.shape[::-1])
        vars(back)["T"] = self
        return back

    def times(self, dense: Tensor) -> Tensor:
        """The product, without gradients."""
        if dense.dtype != self.entries.dtype:
            return self.times(dense.to(self.entries.dtype)).to(dense.dtype)
        if self.csr is not None:
            with without_autocast(dense.device.type):
                return self.csr @ dense.detach()
        entries = self.entries if dense.dim() == 1 else self.entries.unsqueeze(1)
        zeros = torch.zeros(self.shape[0], *dense.shape[1:], dtype=dense.dtype, device=dense.device)
        return zeros.index_add_(0, self.rows, dense.detach().index_select(0, self.columns) * entries)


def matrix(starts: Tensor, columns: Tensor, entries: Tensor, shape: tuple[int, int]) -> Matrix:
    """The matrix with these entries, row by row; what is given twice at one place counts twice."""
    if entries.device.type != "cpu":
        rows = torch.arange(shape[0], device=starts.device).repeat_interleave(starts.diff())
        return Gathered(rows, columns, entries, shape)
    return Sparse(csr_tensor(starts, columns, full_precision(entries), shape))


def csr_parts(csr: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where rows start, columns and entries."""
    return csr.crow_indices(), csr.col_indices(), csr.values()


def csr_times(csr: Tensor, parts: tuple[Tensor, Tensor, Tensor], dense: Tensor) -> Tensor:
    """A X: each row a weighted sum of rows of X, a bag of embeddings, whose float32 kernel is faster than MKL's."""
    if dense.dtype.itemsize < 4:  # there is no product in half precision
        return csr_times(csr, parts, dense.float()).to(dense.dtype)
    if dense.dtype != torch.float32 or dense.dim() == 1 or dense.shape[1] < BAG_COLUMNS:
        with without_autocast(dense.device.type):
            return csr @ dense
    starts, columns, entries = parts
    rows = dense.detach().contiguous()
    return torch.embedding_bag(rows, columns, starts, False, SUM, False, entries, include_last_offset=True)[0]


def torch_csr(matrix: Any) -> Tensor:
    """Scipy's CSR as a tensor, without a copy."""
    # scipy takes 32-bit indices wherever they suffice: half the index traffic, and what MKL wants.
    starts, columns, entries = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return csr_tensor(starts, columns, entries, matrix.shape)


def csr_tensor(starts: Tensor, columns: Tensor, entries: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A CSR tensor of parts that are known to fit."""
    return torch.sparse_csr_tensor(starts, columns, entries, size=shape, device=entries.device, check_invariants=False)


with warnings.catch_warnings():  # here, since filters belong to all threads: torch says once that CSR is in beta
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
    csr_tensor(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), torch.zeros(0), (0, 0))


def row_entries(starts: Tensor, rows: Tensor) -> Tensor:
    """Where in a CSR matrix, whose rows begin at `starts`, the entries of these rows are, row by row.

    >>> row_entries(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    first, counts = starts[rows], starts[rows + 1] - starts[rows]
    ends = torch.cumsum(counts, dim=0)
    shift = torch.repeat_interleave(first - (ends - counts), counts)  # from where entries come, less where they go
    return torch.arange(len(shift), device=starts.device) + shift


def _same(a: Any, b: Any) -> bool:
    pairs = ((a.indptr, b.indptr), (a.indices, b.indices), (a.data, b.data))
    return a.shape == b.shape and all(np.array_equal(left, right) for left, right in pairs)


def density(x: Tensor) -> float:
    """The share of entries that are not 0; of large dense features, that of some rows."""
    if x.layout == torch.sparse_csr:
        return int(torch.count_nonzero(x.values())) / max(x.numel(), 1)
    rows = x[:: max(1, x.numel() // SAMPLE)]
    return int(torch.count_nonzero(rows)) / max(rows.numel(), 1)


def sparse_enough(x: Tensor) -> bool:
    """Whether so few entries differ from zero that a sparse matrix is the better one."""
    return density(x) < SPARSE_BELOW


def scipy_csr(x: Tensor) -> Any:
    """A dense or CSR tensor on the CPU as scipy's CSR, the latter without a copy unless in half precision."""
    x = full_precision(x)
    if x.layout == torch.strided:
        return _scipy_csr(x.numpy())
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return sp.csr_array(parts, shape=(x.shape[0], x.shape[1]))


def _scipy_csr(x: Any) -> Any:
    """The same of a dense array: a sixth of the time that scipy's own way takes, in threads."""
    rows, columns = x.shape
    step = max(1, BLOCK // max(columns, 1))

    def block(start: int) -> tuple[Any, Any, Any]:
        chosen = x[start : start + step]
        entries = chosen.reshape(-1)
        places = (entries != 0).nonzero()[0]
        ends = places.searchsorted(np.arange(1, len(chosen) + 1) * columns)  # of each row
        return ends, places % max(columns, 1), entries[places]

    ends, places, values = zip(*in_threads(block, range(0, max(rows, 1), step)), strict=True)
    before = np.cumsum([0, *map(len, places)])
    index = np.int32 if max(columns, before[-1]) < 2**31 else np.int64
    starts = np.concatenate([[0], *(end + first for end, first in zip(ends, before, strict=False))])
    parts = (np.concatenate(values), np.concatenate(places).astype(index), starts.astype(index))
    return sp.csr_array(parts, shape=x.shape)
