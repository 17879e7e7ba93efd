"""How alike the features of neighbours are, dense or sparse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gnnsafe.checks import full_precision
from gnnsafe.methods.rows import unit_rows
from gnnsafe.outputs import Outputs
from gnnsafe.sparse import scipy_csr, sparse_enough

__all__ = ["cosines", "directions", "mean_cosines", "mean_row"]

ROUNDING = 1e-12  # of squares in double precision: a row nearer to the centre than that is there
COLUMNS = 64  # of a sparse matrix that are dense at a time, on devices other than the CPU


def mean_cosines(outputs: Outputs, centre: Tensor | None = None) -> Tensor:
    """Mean of cos(x_i − μ, x_j − μ) over in-neighbours j of i, μ the centre, by default 0; 0 where there are none.

    Features that are sparse stay so: on the CPU ⟨x_i − μ, x_j − μ⟩ = ⟨x_i, x_j⟩ − ⟨x_i, μ⟩ − ⟨x_j, μ⟩ + ⟨μ, μ⟩, on
    other devices they are taken a few columns at a time.
    """
    x = full_precision(outputs.graph.x.detach())
    sparse = sparse_enough(x) if x.device.type == "cpu" else x.layout == torch.sparse_csr
    mean: Any = outputs.graph.edges.mean(torch.float64 if sparse else x.dtype, "decay")
    if not sparse:
        unit = directions(full_precision(outputs.dense_features()), centre)
        return cosines(unit, mean @ unit)
    middle = (torch.zeros(x.shape[1], device=x.device) if centre is None else centre).to(x.device, torch.float64)
    if x.device.type == "cpu":  # scipy's products are the CPU's
        return torch.from_numpy(_expanded(scipy_csr(x), scipy_csr(mean.csr), middle.numpy())).float()
    return _by_columns(x, mean, middle).float()


def directions(rows: Tensor, centre: Tensor | None = None) -> Tensor:
    """(x − μ) / ‖x − μ‖ of dense rows, by halves, whose difference float32 has: only directions count."""
    return unit_rows(rows if centre is None else 0.5 * rows - (0.5 * centre).to(rows))


def cosines(unit: Tensor, averaged: Tensor) -> Tensor:
    """⟨c_i, mean_j c_j⟩ of directions c and their means over in-neighbours."""
    return (unit * averaged).sum(dim=1).float()


def mean_row(x: Tensor, mask: Tensor) -> Tensor:
    """The mean of the rows in `mask`, dense or CSR, in double precision."""
    if x.layout == torch.strided:
        return x[mask].mean(dim=0, dtype=torch.float64)
    weights = (mask.double() / mask.sum()).repeat_interleave(x.crow_indices().diff())
    zeros = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
    return zeros.index_add_(0, x.col_indices().long(), x.values() * weights)


def _expanded(x: Any, mean: Any, centre: Any) -> Any:
    rows = x.astype(np.float64)  # float32 has no square of 1e20
    rows.sum_duplicates()
    along, total = rows @ centre, centre @ centre
    squares = rows.power(2).sum(axis=1) + total
    lengths = squares - 2 * along
    with np.errstate(divide="ignore"):
        scale = np.where(lengths > ROUNDING * squares, 1 / np.sqrt(np.abs(lengths)), 0)
    unit = sp.diags_array(scale) @ rows
    averaged = unit.multiply(mean @ unit).sum(axis=1)
    return averaged - scale * (along * (mean @ scale) + mean @ (scale * along) - total * (mean @ scale))


def _by_columns(x: Tensor, mean: Any, centre: Tensor) -> Tensor:
    squares, norms = torch.zeros_like(centre[:1]).expand(len(x)).clone(), centre @ centre
    for block in _blocks(x, centre):
        squares += block.square().sum(dim=1)
    scale = torch.where(squares > ROUNDING * norms, squares, torch.inf).rsqrt().unsqueeze(1)
    cosines = torch.zeros_like(squares)
    for block in _blocks(x, centre):
        cosines += (scale * block * (mean @ (scale * block))).sum(dim=1)
    return cosines


def _blocks(x: Tensor, centre: Tensor) -> Iterator[Tensor]:
    """x − μ, a few columns at a time, dense."""
    rows = torch.arange(x.shape[0], device=x.device).repeat_interleave(x.crow_indices().diff())
    order = torch.argsort(x.col_indices(), stable=True)
    rows, columns, entries = rows[order], x.col_indices()[order], x.values().double()[order]
    for first in range(0, x.shape[1], COLUMNS):
        middle = centre[first : first + COLUMNS]
        chosen = (columns >= first) & (columns < first + len(middle))
        block = -middle.expand(x.shape[0], -1)
        places = (rows[chosen], columns[chosen] - first)
        yield block.clone().index_put_(places, entries[chosen], accumulate=True)
