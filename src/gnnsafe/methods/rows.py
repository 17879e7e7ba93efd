"""Rows of numbers, embeddings or features, of any magnitude: their directions, and whether they vary at all."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

__all__ = ["lengths", "unit_rows", "vary"]


def lengths(rows: Tensor) -> Tensor:
    """The length of each row in double precision; those whose squares float32 has not are worked out in it.

    >>> lengths(torch.tensor([[3.0, 4.0], [0.0, 2.0**100]])).tolist()
    [5.0, 1.2676...e+30]
    """
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1).double()
    suspect = ~((norms > 1e-15) & (norms < 1e15))
    norms[suspect] = torch.linalg.vector_norm(rows[suspect].double(), dim=1)
    return norms


def unit_rows(rows: Tensor) -> Tensor:
    """Each row divided by its length, however large or small its entries are; rows of zeros stay as they are.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [1e30, 0.0], [0.0, -1e-30], [0.0, 0.0]])).tolist()
    [[0.6..., 0.8...], [1.0, 0.0], [0.0, -1.0], [0.0, 0.0]]
    """
    if rows.dtype == torch.float64:  # which has the square of every number of float32
        return F.normalize(rows, eps=1e-150)
    largest = torch.linalg.vector_norm(rows.detach(), ord=torch.inf, dim=1, keepdim=True)
    return F.normalize(rows / largest.where(largest > 0, 1))  # whose squares neither overflow nor vanish


def vary(centred: Tensor, rows: Tensor, dtype: torch.dtype) -> bool:
    """Whether the rows, `centred`, are more than the rounding of rows in that precision."""
    return bool(centred.abs().max() > 8 * torch.finfo(dtype).eps * rows.abs().max())
