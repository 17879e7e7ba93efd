"""Rows of numbers, embeddings or features, of any magnitude: directions, quantiles, entries, and whether they vary."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

__all__ = ["entries_by_row", "lengths", "quantiles", "sums_by_row", "unit_rows", "vary"]


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
    largest = rows.detach().abs().amax(dim=1, keepdim=True)
    return F.normalize(rows / largest.where(largest > 0, 1))  # whose squares neither overflow nor vanish


def vary(centred: Tensor, rows: Tensor, dtype: torch.dtype) -> bool:
    """Whether the rows, `centred`, are more than the rounding of rows in that precision."""
    return bool(centred.abs().max() > 8 * torch.finfo(dtype).eps * rows.abs().max())


def quantiles(values: Tensor, shares: Sequence[float]) -> Tensor:
    """Each share's quantile of every column, interpolated linearly, in double precision: [shares, …].

    >>> quantiles(torch.tensor([4.0, 0.0, 1.0]), (0.5, 0.75)).tolist()
    [1.0, 2.5]
    """
    ordered = values.double().sort(dim=0).values  # torch.quantile refuses more than 2**24 values
    places = [share * (len(ordered) - 1) for share in shares]
    ends = [(ordered[math.floor(place)], ordered[math.ceil(place)]) for place in places]
    return torch.stack([torch.lerp(*end, place % 1) for end, place in zip(ends, places, strict=True)])


def entries_by_row(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row and column of each entry of a CSR tensor, and the entry in double precision; one place has one entry."""
    starts, entries = x.crow_indices(), x.values().double()
    rows = torch.arange(x.shape[0], device=x.device).repeat_interleave(starts.diff())
    places = rows * x.shape[1] + x.col_indices()
    if bool((places.diff() > 0).all()):
        return rows, x.col_indices(), entries
    distinct, which = torch.unique(places, return_inverse=True)
    return distinct // x.shape[1], distinct % x.shape[1], sums_by_row(which, entries, len(distinct))


def sums_by_row(rows: Tensor, entries: Tensor, num_rows: int) -> Tensor:
    """The sum of each row's entries.

    >>> sums_by_row(torch.tensor([0, 0, 2]), torch.tensor([1.0, 2.0, 4.0]), 3).tolist()
    [3.0, 0.0, 4.0]
    """
    return torch.zeros(num_rows, dtype=entries.dtype, device=entries.device).index_add_(0, rows, entries)
