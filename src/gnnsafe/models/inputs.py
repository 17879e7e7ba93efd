"""What a convolution reads of a graph, made ready once: sparse or aggregated features, and Â.

The first layer computes Â X W for a constant Â X, in the cheapest of three orders:

- X dense: ÂX once, then one dense product (ÂX) W per pass.
- X sparse (bag-of-words): Â (X W) with nnz(X) + nnz(Â) multiplications per output column,
- unless nnz(ÂX) is smaller than that: then (ÂX) W, sparse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gnnsafe.checks import check_features, check_tensor
from gnnsafe.sparse import Sparse, gcn_matrix, remembered

__all__ = ["ConvolutionInputs", "convolution_inputs", "feature_matrix"]

SPARSE_BELOW = 0.1  # density below which a CSR product beats the dense one on a CPU
SAMPLED_ROWS = 1000


@dataclass(frozen=True)
class ConvolutionInputs:
    """A graph as a convolution reads it: Â, and X or ÂX."""

    adjacency: Sparse
    features: Sparse | Tensor
    aggregated: bool

    def convolve(self, weight: Tensor) -> Tensor:
        """Â X W."""
        product = self.features @ weight
        return product if self.aggregated else self.adjacency @ product


def convolution_inputs(x: Tensor, edge_index: Tensor) -> ConvolutionInputs:
    """Make the graph ready, once: remembered while both tensors live and keep their content.

    Features that ask for a gradient are left as they are, so that it can reach them.
    """
    check_tensor("x", x, torch.strided, torch.sparse_csr)
    check_tensor("edge_index", edge_index)
    if x.requires_grad:
        check_features(x)
        return ConvolutionInputs(gcn_matrix(edge_index, num_nodes=len(x), dtype=x.dtype), x, aggregated=False)
    return _prepared(x, edge_index)


@remembered
def _prepared(x: Tensor, edge_index: Tensor) -> ConvolutionInputs:
    check_features(x)
    adjacency = gcn_matrix(edge_index, num_nodes=len(x), dtype=x.dtype)
    if _nnz(x) >= SPARSE_BELOW * x.numel():
        dense = x.to_dense() if x.layout == torch.sparse_csr else x
        return ConvolutionInputs(adjacency, adjacency @ dense, aggregated=True)
    matrix, a = _scipy(x), _scipy(adjacency.csr)
    rows = np.linspace(0, len(x) - 1, min(len(x), SAMPLED_ROWS), dtype=np.int64)
    aggregated_nnz = (a[rows] @ matrix).nnz * len(x) / len(rows)
    if aggregated_nnz < matrix.nnz + a.nnz:
        return ConvolutionInputs(adjacency, Sparse(a @ matrix), aggregated=True)
    return ConvolutionInputs(adjacency, Sparse(matrix), aggregated=False)


def feature_matrix(x: Tensor) -> Sparse | Tensor:
    """X as a first layer without neighbours multiplies it, X W: CSR, remembered, where it is sparse, else dense."""
    check_tensor("x", x, torch.strided, torch.sparse_csr)
    if x.requires_grad:
        return check_features(x)
    sparse = _sparse_features(x)
    if sparse is not None:
        return sparse
    return x.to_dense() if x.layout == torch.sparse_csr else x


@remembered
def _sparse_features(x: Tensor) -> Sparse | None:
    check_features(x)
    return Sparse(_scipy(x)) if _nnz(x) < SPARSE_BELOW * x.numel() else None  # not x itself: it would never be freed


def _nnz(x: Tensor) -> int:
    return int(torch.count_nonzero(x.values() if x.layout == torch.sparse_csr else x))


def _scipy(x: Tensor) -> Any:
    if x.layout == torch.strided:
        return sp.csr_array(x.numpy())
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return sp.csr_array(parts, shape=(x.shape[0], x.shape[1]))
