"""What models read of a graph, made ready once: sparse or aggregated features, and Â (or another matrix of its edges).

The first layer computes Â^k X W for a constant Â^k X, in the cheapest of three orders:

- X dense: Â^k X once, then one dense product (Â^k X) W per pass.
- X sparse (bag-of-words): Â (X W) with nnz(X) + nnz(Â) multiplications per output column,
- unless nnz(ÂX) is smaller than that: then (ÂX) W, sparse; and so on from power to power.

Where X is neither sparse nor full, Â (X W) with the entries of X is still the faster product, and (ÂX)ᵀ the faster way
back from it: both are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.errors import require
from gnnsafe.once import once
from gnnsafe.prepared import Features, PreparedGraph
from gnnsafe.sparse import Matrix, Sparse, density, scipy_csr

__all__ = ["ConvolutionInputs", "Kind", "check_fits", "convolution_inputs", "product"]

SAMPLED_ROWS = 1000
BAG_BELOW = 0.5  # density below which a product with sparse X beats that with dense ÂX, though not the backward pass
LINE = 16  # float32 in a line of the cache; products are faster where every row begins with one
WORTH_ALIGNING = 8 * LINE  # columns from which on that takes hardly more memory
MOMENT_ROWS = 2**14  # that are in double precision at once

Kind = Literal["convolution", "mean", "sum"]
"""Which matrix of the edges: Â, D⁻¹A or A + I."""


def product(features: Features, weight: Tensor) -> Tensor:
    """X W."""
    if isinstance(features, Tensor) and features.layout == torch.strided:
        if LINE // 2 < (columns := weight.shape[1]) < LINE and not torch.is_grad_enabled():  # which cost BLAS more
            return (features @ F.pad(weight, (0, LINE - columns)))[:, :columns].contiguous()
        return F.linear(features, weight.T.contiguous())  # BLAS wants few columns as rows, forward and backward
    return features @ weight


@dataclass(frozen=True)
class ConvolutionInputs:
    """A graph as a convolution reads it: Â, and Â^k X, of whose k `hops` the features have `aggregated`."""

    adjacency: Matrix
    features: Features
    aggregated: int
    hops: int = 1
    bag: Sparse | None = None  # X where it is neither sparse nor full: for products without a backward pass

    def convolve(self, weight: Tensor) -> Tensor:
        """Â^k X W."""
        return self.spread(*self.multiplied(weight))

    def multiplied(self, weight: Tensor) -> tuple[Tensor, int]:
        """Â^j X W, and j."""
        if self.bag is not None and not (torch.is_grad_enabled() and weight.requires_grad):
            return product(self.bag, weight), 0
        return product(self.features, weight), self.aggregated

    def spread(self, convolved: Tensor, hops: int) -> Tensor:
        """Â^k X W from Â^j X W and j."""
        for _ in range(self.hops - hops):
            convolved = self.adjacency @ convolved
        return convolved

    def multiplies_as(self, other: ConvolutionInputs) -> bool:
        """Whether `multiplied`, without gradients, gives the same on both graphs: they are one, or have the same X."""
        if self is other:
            return True
        mine, theirs = (inputs.bag or (None if inputs.aggregated else inputs.features) for inputs in (self, other))
        return isinstance(mine, Sparse) and isinstance(theirs, Sparse) and mine.equal(theirs)

    def convolved_back(self, gradient: Tensor) -> Tensor:
        """(Â^k X)ᵀ G: the gradient of W where that of Â^k X W is G."""
        for _ in range(self.hops - self.aggregated):
            gradient = self.adjacency.T @ gradient
        return self.features.T @ gradient

    @once
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance of the features' rows where they are dense, in double precision."""
        assert isinstance(self.features, Tensor)
        rows = self.features.shape[0]
        mean = self.features.mean(dim=0, dtype=torch.float64)
        covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=mean.device)
        for part in torch.split(self.features, MOMENT_ROWS):
            centred = part - mean
            covariance.addmm_(centred.T, centred, alpha=1 / rows)
        return mean, covariance


def check_fits(graph: PreparedGraph, in_channels: int, weight: Tensor) -> None:
    """A graph fits a model if it has as many features as that, of its precision, on its device."""
    x = graph.x
    remedy = f"call data.to('{weight.device}'), or model.to('{x.device}')"
    require(x.device == weight.device, "x", f"be on the model's device, {weight.device}", x.device, remedy)
    require(x.shape[1] == in_channels, "x", f"have {in_channels} features", x.shape[1])
    require(
        x.dtype == weight.dtype, "x", f"be {weight.dtype} as the model is", x.dtype, "call x.to(...) or model.to(...)"
    )


def convolution_inputs(graph: PreparedGraph, kind: Kind = "convolution", *, hops: int = 1) -> ConvolutionInputs:
    """The graph as a convolution reads it, made ready once.

    Features that require a gradient are left as they are, so that it can reach them.
    """
    adjacency = _adjacency(graph, kind)
    if graph.x.requires_grad:
        return ConvolutionInputs(adjacency, graph.x, aggregated=0, hops=hops)
    return graph.cached((kind, hops), lambda: _prepared(graph, adjacency, hops))


def _adjacency(graph: PreparedGraph, kind: Kind) -> Matrix:
    edges, dtype = graph.edges, graph.x.dtype
    if kind == "mean":
        return edges.mean(dtype, "decay")  # a node without in-neighbours gets 0
    return edges.sum(dtype) if kind == "sum" else edges.convolution(dtype)


def _prepared(graph: PreparedGraph, adjacency: Matrix, hops: int) -> ConvolutionInputs:
    features, aggregated, bag = graph.features, 0, None
    if not graph.edges.reused:  # a single pass does not pay for more
        return ConvolutionInputs(adjacency, features, aggregated, hops)
    if hops == 1 and isinstance(features, Tensor) and _bag_pays(features):
        bag = Sparse(scipy_csr(features))
    while aggregated < hops and _worth_aggregating(adjacency, features):
        features, aggregated = _aggregate(adjacency, features), aggregated + 1
    return ConvolutionInputs(adjacency, features, aggregated, hops, bag)


def _bag_pays(features: Tensor) -> bool:
    return features.device.type == "cpu" and features.dtype == torch.float32 and density(features) < BAG_BELOW


def _worth_aggregating(adjacency: Matrix, features: Features) -> bool:
    if isinstance(features, Tensor):
        return True
    if not (isinstance(adjacency, Sparse) and isinstance(features, Sparse)):
        return False
    a, x = scipy_csr(adjacency.csr), scipy_csr(features.csr)
    rows = np.linspace(0, x.shape[0] - 1, min(x.shape[0], SAMPLED_ROWS), dtype=np.int64)
    return bool((a[rows] @ x).nnz * x.shape[0] / len(rows) < x.nnz + a.nnz)


def _aggregate(adjacency: Matrix, features: Features) -> Features:
    if isinstance(features, Tensor):
        aggregated, (rows, columns) = adjacency @ features, features.shape
        if columns < WORTH_ALIGNING:
            return aggregated
        return features.new_empty(rows, -(-columns // LINE) * LINE)[:, :columns].copy_(aggregated)
    assert isinstance(adjacency, Sparse)
    assert isinstance(features, Sparse)
    return Sparse(scipy_csr(adjacency.csr) @ scipy_csr(features.csr))
