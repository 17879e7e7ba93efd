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
from typing import Any, Literal, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
import xxhash
from torch import Tensor

from gnnsafe.checks import check_edge_index

__all__ = [
    "Isolated",
    "Sparse",
    "gcn_matrix",
    "in_degrees",
    "mean_matrix",
    "remembered",
    "scipy_csr",
    "sparse_enough",
]

SPARSE_BELOW = 0.1  # density below which a CSR product beats the dense one on a CPU

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
        forward, transpose = sp.csr_array(matrix), sp.csr_array(matrix.T)
        self.csr = _torch_csr(forward)
        if _same(forward, transpose):
            self.T = self
        else:
            self.T = Sparse.__new__(Sparse)
            self.T.csr, self.T.T = _torch_csr(transpose), self

    def __matmul__(self, dense: Tensor) -> Tensor:
        product: Tensor = _Product.apply(self, dense)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """Y = A X; the gradient of X is Aᵀ times the gradient of Y, itself such a product."""

    @staticmethod
    def forward(ctx: Any, matrix: Sparse, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix.csr @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix.T @ gradients[0].contiguous()


def _torch_csr(matrix: Any) -> Tensor:
    # scipy takes 32-bit indices wherever they suffice: half the index traffic, and what MKL wants.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr),
            torch.from_numpy(matrix.indices),
            torch.from_numpy(matrix.data),
            size=matrix.shape,
            check_invariants=False,
        )


def _same(a: Any, b: Any) -> bool:
    pairs = ((a.indptr, b.indptr), (a.indices, b.indices), (a.data, b.data))
    return a.shape == b.shape and all(np.array_equal(left, right) for left, right in pairs)


def _fingerprint(tensor: Tensor) -> tuple[Hashable, ...]:
    tensor = tensor.detach()
    if tensor.layout == torch.sparse_csr:
        parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
        return (tensor.shape, *(_fingerprint(part) for part in parts))
    content: Any = tensor.contiguous().flatten().view(torch.uint8).numpy()
    return tensor.dtype, tensor.shape, xxhash.xxh3_128_digest(content)


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
        content = tuple(map(_fingerprint, tensors))
        if key in memory and memory[key][0] == content:
            return memory[key][1]
        result = build(*tensors, **options)
        alive = [weakref.ref(tensor, lambda _: memory.pop(key, None)) for tensor in tensors]
        memory[key] = (content, result, alive)
        return result

    return lookup


def sparse_enough(x: Tensor) -> bool:
    """Whether so few entries differ from zero that a sparse matrix is the better one."""
    entries = x.values() if x.layout == torch.sparse_csr else x
    return int(torch.count_nonzero(entries)) < SPARSE_BELOW * x.numel()


def scipy_csr(x: Tensor) -> Any:
    """A dense or CSR tensor as scipy's CSR, the latter without a copy."""
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
    return torch.empty(0, dtype=dtype).numpy().dtype


@remembered
def mean_matrix(edge_index: Tensor, *, num_nodes: int, dtype: torch.dtype, isolated: Isolated) -> Sparse:
    """D⁻¹A: row i averages over the nodes that point to i, counting each edge as often as it is given.

    A node that nobody points to has no average: `keep` gives it its own value, `decay` gives it 0.

    >>> mean_matrix(torch.tensor([[0, 1], [2, 2]]), num_nodes=3, dtype=torch.float32,
    ...             isolated="keep").csr.to_dense().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]
    """
    check_edge_index(edge_index, num_nodes)
    source, target = edge_index.numpy()
    degree = np.bincount(target, minlength=num_nodes)
    if isolated == "keep":
        alone = np.flatnonzero(degree == 0)
        source, target = np.concatenate([source, alone]), np.concatenate([target, alone])
    weight = (1 / np.maximum(degree, 1)).astype(_numpy_dtype(dtype))[target]
    return Sparse(sp.coo_array((weight, (target, source)), shape=(num_nodes, num_nodes)).tocsr())


@remembered
def gcn_matrix(edge_index: Tensor, *, num_nodes: int, dtype: torch.dtype) -> Sparse:
    """Â = D̃^-½ (A + I) D̃^-½ with D̃ the in-degrees of A + I; each node has exactly one self-loop.

    >>> gcn_matrix(torch.tensor([[0], [1]]), num_nodes=2, dtype=torch.float64).csr.to_dense().tolist()
    [[1.0, 0.0], [0.7071..., 0.5...]]
    """
    check_edge_index(edge_index, num_nodes)
    source, target = edge_index.numpy()
    keep, loops = source != target, np.arange(num_nodes)
    source, target = np.concatenate([source[keep], loops]), np.concatenate([target[keep], loops])
    scale = np.bincount(target, minlength=num_nodes) ** -0.5
    weight = (scale[source] * scale[target]).astype(_numpy_dtype(dtype))
    return Sparse(sp.coo_array((weight, (target, source)), shape=(num_nodes, num_nodes)).tocsr())
