"""How far the features of a node lie from those of the training nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gnnsafe.methods.base import Kind, Method, fitted
from gnnsafe.methods.likeness import mean_row
from gnnsafe.methods.rows import entries_by_row, sums_by_row
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph
from gnnsafe.scores import saturated
from gnnsafe.sparse import Sparse

__all__ = ["FeatureDistance"]

NUMBERS = 2**20  # held in double precision at a time, whatever the number of nodes
FULL = 1e3  # the square of μ/σ in a column that is hardly ever 0: by its own, for what is subtracted hides all others
ROUNDING = 1e-12  # of squares in double precision: a feature that varies less is the same everywhere


@dataclass
class FeatureDistance(Method):
    """Features far from the training nodes': Σ_d (x_d − μ_d)² / σ_d², no model (trivial).

    μ and σ are the mean and the standard deviation of the training nodes' features. A feature that is the same in all
    of them has the largest σ of the others, or 1, and at least a millionth of its size. Neighbours do not count: what
    it sees, the node itself has.
    """

    centre_: Tensor = fitted()
    scale_: Tensor = fitted()

    kind: ClassVar[Kind] = "trivial"

    base_reach = 0
    says = "features far from training nodes'"

    def fit(self, outputs: Outputs, y: Tensor, mask: Tensor) -> FeatureDistance:
        """Learn μ and σ."""
        super().fit(outputs, y, mask)
        x = _features(outputs.graph)
        self.centre_ = mean_row(x, mask)
        variance = _variance(x, mask, self.centre_)
        varies = variance > ROUNDING * (self.centre_.square() + variance)
        others = variance[varies].amax() if bool(varies.any()) else torch.ones_like(variance)
        self.scale_ = torch.where(varies, variance, torch.maximum(others, ROUNDING * self.centre_.square())).sqrt()
        return self

    def base_scores(self, outputs: Outputs) -> Tensor:
        """Σ_d ((x_d − μ_d) / σ_d)²."""
        return self.of_graph(outputs.graph)[:, 0].clone()

    def of_graph(self, graph: PreparedGraph) -> Tensor:
        """The `sums` of a graph; no model is in them, so they are kept with it."""
        key = tuple(each.cpu().numpy().tobytes() for each in (self.centre_, self.scale_))
        return graph.recent("feature distance", key, lambda: self.sums(_features(graph)))

    def sums(self, x: Tensor) -> Tensor:
        """Of features, dense or CSR, the sums of squares and of fourth powers, [nodes, 2].

        Many features that are a little off show in the first, a single one that is far off among many in the second.
        """
        if x.layout == torch.strided:
            return saturated(torch.cat([_powers(self._squares(rows)) for rows in _dense_rows(x)]))
        zeros = self._squares(torch.zeros_like(self.centre_))  # of a row without entries
        rows, columns, entries = entries_by_row(x)
        full = zeros > FULL
        here = ~full[columns]
        found = _powers(torch.where(full, 0.0, zeros)).expand(x.shape[0], -1).clone()
        squares = self._squares(entries[here], columns[here])
        beyond = _powers(squares[:, None]) - _powers(zeros[columns[here], None])
        found.index_add_(0, rows[here], beyond)
        apart = torch.zeros(x.shape[0], int(full.sum()), dtype=torch.float64, device=x.device)
        apart[rows[~here], (full.cumsum(0) - 1)[columns[~here]]] = entries[~here]
        return saturated(found.clamp(min=0) + _powers(self._squares(apart, full)))

    def _squares(self, rows: Tensor, columns: Tensor | slice = slice(None)) -> Tensor:
        return ((rows - self.centre_[columns]) / self.scale_[columns]).square()


def _powers(squares: Tensor) -> Tensor:
    """The sums of squares and of their squares, of each row."""
    return torch.stack([squares.sum(dim=-1), squares.square().sum(dim=-1)], dim=-1)


def _features(graph: PreparedGraph) -> Tensor:
    """As CSR where few of them are not 0."""
    features = graph.features
    return features.csr if isinstance(features, Sparse) else graph.x.detach()


def _variance(x: Tensor, mask: Tensor, centre: Tensor) -> Tensor:
    """That of the rows in the mask about their mean, of each column."""
    if x.layout == torch.strided:
        squares = [(rows - centre).square().sum(dim=0) for rows in _dense_rows(x[mask])]
        return torch.stack(squares).sum(dim=0) / mask.sum()
    rows, columns, entries = entries_by_row(x)
    rows, columns, entries = (each[mask[rows]] for each in (rows, columns, entries))
    beyond = (entries - centre[columns]).square() - centre[columns].square()
    return (centre.square() + sums_by_row(columns, beyond, len(centre)) / mask.sum()).clamp(min=0)


def _dense_rows(x: Tensor) -> Iterator[Tensor]:
    """In double precision, some at a time."""
    for rows in torch.split(x, max(1, NUMBERS // max(1, x.shape[1]))):
        yield rows.double()
