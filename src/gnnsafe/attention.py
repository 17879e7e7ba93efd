"""Averages over neighbours whose weights vary: what attention is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnsafe.checks import full_precision
from gnnsafe.sparse import csr_parts, csr_tensor, csr_times

__all__ = ["Pattern"]


class Pattern:
    """Where a sparse square matrix has its entries, sorted by row; the entries themselves vary.

    An entry that is given `times` over is there once, and counts as often in an average.

    >>> pattern = Pattern(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2)
    >>> pattern.average(torch.tensor([2.0, 2.0, 5.0]), torch.tensor([[1.0], [3.0]])).tolist()
    [[2.0], [3.0]]
    """

    def __init__(self, rows: Tensor, columns: Tensor, size: int) -> None:
        by_row, by_column = (part.cpu().numpy() for part in (rows, columns))
        order = np.lexsort((by_column, by_row))
        by_row, by_column = by_row[order], by_column[order]
        first = np.flatnonzero((np.diff(by_row, prepend=-1) != 0) | (np.diff(by_column, prepend=-1) != 0))
        times = np.diff(first, append=len(by_row))
        by_row, by_column = by_row[first], by_column[first]
        back = np.lexsort((by_row, by_column))
        parts = (by_row, by_column, back, _starts(by_row, size), _starts(by_column, size), by_row[back], times)
        # 32 bits are what MKL wants; they are gathered with several times as fast, too.
        tensors = [torch.from_numpy(part.astype(np.int32)).to(rows.device) for part in parts]
        self.rows, self.columns, self.back, self.starts, self.starts_back, self.columns_back = tensors[:-1]
        self.times = tensors[-1] if (times > 1).any() else None
        self.size, self.offsets = size, self.starts.long()

    def average(self, scores: Tensor, dense: Tensor) -> Tensor:
        """Row i: Σ_j α_ij x_j with α_i the softmax of the scores of row i's entries; no row may be empty."""
        if scores.device.type != "cpu":
            return self._gathered_average(scores, dense)
        highest = torch.segment_reduce(scores.detach(), "max", offsets=self.offsets)
        weights = self._counted((scores - highest.index_select(0, self.rows)).exp())
        total = torch.segment_reduce(weights, "sum", offsets=self.offsets)
        parts = full_precision(weights), full_precision(dense)
        summed: Tensor = _WeightedSum.apply(self, *parts)  # type: ignore[no-untyped-call]
        return summed.to(dense.dtype) / total.unsqueeze(1)

    def _gathered_average(self, scores: Tensor, dense: Tensor) -> Tensor:
        """The same in plain torch."""
        rows, columns = self.rows.long(), self.columns.long()
        lowest = torch.full((self.size,), -torch.inf, dtype=scores.dtype, device=scores.device)
        highest = lowest.scatter_reduce(0, rows, scores.detach(), "amax")
        weights = self._counted((scores - highest.index_select(0, rows)).exp())
        zeros = torch.zeros(self.size, dense.shape[1] + 1, dtype=dense.dtype, device=dense.device)
        gathered = torch.cat([dense.index_select(0, columns), torch.ones_like(weights).unsqueeze(1)], dim=1)
        summed = zeros.index_add(0, rows, gathered * weights.unsqueeze(1))
        return summed[:, :-1] / summed[:, -1:]

    def _counted(self, weights: Tensor) -> Tensor:
        return weights if self.times is None else weights * self.times

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
        return csr_times(matrix, csr_parts(matrix), dense)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        entries, dense = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        sampled = torch.sparse.sampled_addmm(ctx.pattern.matrix(entries), gradient, dense.T, beta=0.0)
        transpose = ctx.pattern.transpose(entries)
        return None, sampled.values(), csr_times(transpose, csr_parts(transpose), gradient)


def _starts(rows: Any, size: int) -> Any:
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=size))])
