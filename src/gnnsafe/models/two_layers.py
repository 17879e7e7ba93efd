"""The passes of a two-layer GCN over one graph, on the rows that are read, with gradients written by hand.

M = ÂX does not change. In training mode the network is

    S = M W₁,   μ and σ² the mean and variance of the rows of S,   r = 1 / √(σ² + ε),   x̂ = (S − μ) r
    H = relu(γ x̂ + β),   Z = Â H W₂ + b

and of Z only the rows that the loss reads are wanted, then (with BatchNorm's running statistics for μ and σ²) those of
validation. So Â keeps only these rows, and where they are few (Â H) W₂ multiplies less than Â (H W₂). Back from G = ∂Z:

    ∂b = Σ_i G_i,   ∂W₂ = Hᵀ (Âᵀ G) = (Â H)ᵀ G,   D = Âᵀ G W₂ᵀ where H > 0 and 0 elsewhere,
    ∂β = Σ_i D_i,   ∂γ = Σ_i D_i x̂_i,   ∂S = γ r (D − ∂β / N − x̂ ∂γ / N),   ∂W₁ = Mᵀ ∂S.

`AllRows` does this as it stands. S itself is needed on all rows only for μ, σ² and ∂W₁, and these follow from the mean
m and the covariance C of the rows of M, which do not change either: `FewRows` has S only on the rows that Â reads, and

    μ = m W₁,   σ² = diag(W₁ᵀ C W₁),   ∂γ = r (diag(W₁ᵀ Mᵀ D) − μ ∂β),
    ∂W₁ = γ r (Mᵀ D − m ∂β − r C W₁ ∂γ)   (Mᵀ(S − μ) = N C W₁; factors by column).

That pays where M is dense and C W₁ is a small product. There H takes the place of S and D is used up block by block: a
new tensor of that size costs more than the arithmetic in it, since its pages have to be fetched. The validation pass of
an epoch and the training pass of the next share S, which has the same weights in both; the training passes of two
graphs with the same features, such as those of an ID graph and of exposure nodes in it, share X W₁.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gnnsafe.models.gcn import GCN
from gnnsafe.models.inputs import ConvolutionInputs, product
from gnnsafe.prepared import PreparedGraph
from gnnsafe.sparse import Sparse, scipy_csr
from gnnsafe.staged import staged

__all__ = ["TwoLayers", "suits"]

BLOCK = 2**13  # rows at once, so that they are read where they were written: in the cache
NEARLY_ALL = 0.9  # of the rows, of which all are then read
COVARIANCE_SHARE = 16  # C W₁ is a small product where M has so many times as many rows as features

Tensors = Sequence[Tensor]


class LastLayer:
    """Â H W₂ of the rows that Â keeps, in the order that multiplies less."""

    def __init__(self, adjacency: Any, hidden: int, classes: int) -> None:
        (kept, read), self.adjacency = adjacency.shape, Sparse(adjacency)
        self.hears_first = adjacency.nnz * (hidden - classes) < (read - kept) * hidden * classes
        self.products = kept if self.hears_first else read  # rows that are multiplied with W₂

    def __call__(self, hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Â H W₂, and what `back` asks for: Â H or H."""
        if self.hears_first:
            summed = self.adjacency @ hidden
            return summed @ weight, summed
        return self.adjacency @ product(hidden, weight), hidden

    def back(self, gradient: Tensor, kept: Tensor, weight: Tensor) -> tuple[Callable[[slice], Tensor], Tensor]:
        """Âᵀ G W₂ᵀ by rows, and ∂W₂."""
        if self.hears_first:
            spread = self.adjacency.T @ (gradient @ weight.T)
            return spread.__getitem__, kept.T @ gradient
        narrow = self.adjacency.T @ gradient
        return lambda rows: narrow[rows] @ weight.T, (narrow.T @ kept).T


class AllRows:
    """S on all rows, its moments taken from it; X W₁ is that of a `lender`, whose graph has the same features."""

    def __init__(self, inputs: ConvolutionInputs, training: Any, validation: Any) -> None:
        self.inputs, self.training, self.validation = inputs, training, validation
        self.lender: AllRows | None = None

    def stem(self, weight: Tensor) -> Tensor:
        """S."""
        if self.lender is None:
            self.multiplied = self.inputs.multiplied(weight)
        return self.inputs.spread(*(self.lender or self).multiplied)

    def trained(self, stem: Tensor, norm: Any, weight: Tensor) -> tuple[Tensor, Tensors]:
        """H, and what `gradients` asks for; BatchNorm's running statistics move."""
        settings = norm.weight, norm.bias, norm.running_mean, norm.running_var, True, norm.momentum, norm.eps
        hidden, *moments = torch.native_batch_norm(stem, *settings)
        return hidden.relu_(), (stem, *moments)

    def gradients(
        self, back: Callable[[slice], Tensor], hidden: Tensor, kept: Tensors, norm: Any, _: Tensor
    ) -> Tensors:
        """∂W₁, ∂γ and ∂β; `back` gives rows of Âᵀ G W₂ᵀ."""
        stem, *moments = kept
        active = torch.ops.aten.threshold_backward(back(slice(None)), hidden, 0)  # D
        settings = norm.weight, norm.running_mean, norm.running_var, *moments, True, norm.eps, [True] * 3
        active, gamma, beta = torch.ops.aten.native_batch_norm_backward(active, stem, *settings)
        return self.inputs.convolved_back(active), gamma, beta

    def validated(self, stem: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """H = relu(scale S + shift)."""
        return torch.addcmul(shift, stem, scale).relu_()


class FewRows:
    """S on the rows that Â reads, its moments those of M."""

    def __init__(self, inputs: ConvolutionInputs, training: Any, validation: Any) -> None:
        features: Any = inputs.features
        once, again = _columns_read(training), _columns_read(validation)
        if np.count_nonzero(once) > NEARLY_ALL * len(once):
            once[:] = again[:] = True  # then no copy of M is made
        parts = [np.flatnonzero(part) for part in (once & ~again, once & again, ~once & again)]  # a slice for each pass
        rows, start, end = np.concatenate(parts), len(parts[0]), len(parts[0]) + len(parts[1])
        self.for_training, self.for_validation = slice(0, end), slice(start, None)
        self.training, self.validation = training[:, rows[self.for_training]], validation[:, rows[self.for_validation]]
        self.features = features if len(parts[1]) == len(features) else features[torch.from_numpy(rows)]
        self.nodes = len(features)
        self.mean, self.covariance = inputs.moments
        self.stem_room, self.hidden_room = features.new_empty(0), features.new_empty(0)

    def stem(self, weight: Tensor) -> Tensor:
        """S."""
        return torch.mm(self.features, weight, out=self.stem_room)

    def trained(self, stem: Tensor, norm: Any, weight: Tensor) -> tuple[Tensor, Tensors]:
        """H in the place of S, and what `gradients` asks for; BatchNorm's running statistics move."""
        exact = weight.double()  # what is left of large variances that cancel must not be rounding
        mean, spread = self.mean @ exact, self.covariance @ exact
        variance = (exact * spread).sum(dim=0).clamp_(min=0)
        mean, spread, variance = (moment.to(weight.dtype) for moment in (mean, spread, variance))
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (self.nodes / (self.nodes - 1)), norm.momentum)
        scale = (variance + norm.eps).rsqrt()
        factor, stem = norm.weight * scale, stem[self.for_training]
        return _activated(stem, factor, norm.bias - mean * factor, stem), (mean, spread, scale)

    def gradients(
        self, back: Callable[[slice], Tensor], hidden: Tensor, kept: Tensors, norm: Any, weight: Tensor
    ) -> Tensors:
        """∂W₁, ∂γ and ∂β; `back` gives rows of Âᵀ G W₂ᵀ."""
        (mean, spread, scale), features = kept, self.features[self.for_training]
        summed, beta = torch.zeros_like(weight), torch.zeros_like(scale)  # Mᵀ D, ∂β
        for rows in _blocks(hidden):
            active = torch.ops.aten.threshold_backward(back(rows), hidden[rows], 0)  # D
            summed.addmm_(features[rows].T, active)
            beta += active.sum(dim=0)
        gamma = ((weight * summed).sum(dim=0) - mean * beta) * scale
        first = summed - torch.outer(self.mean.to(beta.dtype), beta) - spread * (scale * gamma)
        return first * (norm.weight * scale), gamma, beta

    def validated(self, stem: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """H = relu(scale S + shift)."""
        stem = stem[self.for_validation]
        return _activated(stem, scale, shift, self.hidden_room.resize_(stem.shape))


def _columns_read(adjacency: Any) -> Any:
    """A mask of the rows that Â reads."""
    mask = np.zeros(adjacency.shape[1], dtype=bool)
    mask[adjacency.indices] = True
    return mask


def _blocks(rows: Tensor) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, len(rows), BLOCK)]


def _activated(stem: Tensor, scale: Tensor, shift: Tensor, out: Tensor) -> Tensor:
    """relu(scale S + shift)."""
    for rows in _blocks(stem):
        torch.addcmul(shift, stem[rows], scale, out=out[rows]).relu_()
    return out


class _Logits(torch.autograd.Function):
    """Z of the training rows from S, which is a function of W₁, and the other weights."""

    @staticmethod
    def forward(ctx: Any, passes: TwoLayers, stem: Tensor, *weights: Tensor) -> Tensor:
        first, _, _, last, bias = weights
        ctx.passes = passes
        hidden, kept = passes.rows.trained(stem, passes.norm, first)
        logits, summed = passes.last(hidden, last)
        ctx.save_for_backward(first, last, hidden, summed, *kept)
        return logits.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        passes, logits, (first, last, hidden, summed, *kept) = ctx.passes, gradients[0].contiguous(), ctx.saved_tensors
        back, last = passes.last.back(logits, summed, last)
        first, gamma, beta = passes.rows.gradients(back, hidden, kept, passes.norm, first)
        return None, None, first, gamma, beta, last, logits.sum(dim=0)


class TwoLayers:
    """The passes of a model that `suits` over one graph; `training` comes right after that of passes `beside` it."""

    def __init__(
        self, model: GCN, graph: PreparedGraph, training: Tensor, validation: Tensor, beside: TwoLayers | None = None
    ) -> None:
        inputs = model.prepare(graph)
        adjacency = scipy_csr(inputs.adjacency.csr)
        self.model, self.norm = model, cast(Any, model.norms[0])
        self.weights = model.weights[0], self.norm.weight, self.norm.bias, model.weights[1], model.biases[0]
        self.rows = _rows(inputs, *(adjacency[rows.numpy()] for rows in (training, validation)))
        self.last, self.last_in_validation = (
            LastLayer(matrix, *model.weights[1].shape) for matrix in (self.rows.training, self.rows.validation)
        )
        self.stem: Tensor | None = None
        own, other = self.rows, None if beside is None else beside.rows
        if isinstance(own, AllRows) and isinstance(other, AllRows) and other.inputs.multiplies_as(own.inputs):
            own.lender = other

    def training(self) -> Tensor:
        """Logits of the training rows, with gradients."""
        stem = self.rows.stem(self.weights[0].detach()) if self.stem is None else self.stem
        self.stem = None
        self.norm.num_batches_tracked.add_(1)
        logits: Tensor = _Logits.apply(self, stem, *self.weights)  # type: ignore[no-untyped-call]
        return logits

    @torch.no_grad()
    def validation(self) -> Tensor:
        """Logits of the validation rows; S is kept for the training pass of the same weights."""
        first, _, _, last, bias = self.weights
        self.stem = self.rows.stem(first)
        hidden = self.rows.validated(self.stem, *self.model.folded(0))
        return self.last_in_validation(hidden, last)[0].add_(bias)


def _rows(inputs: ConvolutionInputs, training: Any, validation: Any) -> AllRows | FewRows:
    """The route with fewer multiplications per output column of the first layer, or hardly more."""
    if not (isinstance(inputs.features, Tensor) and inputs.aggregated):
        return AllRows(inputs, training, validation)
    nodes, features = inputs.features.shape
    read = np.count_nonzero(_columns_read(training) | _columns_read(validation))
    few = read + features < nodes or COVARIANCE_SHARE * features < nodes
    return (FewRows if few else AllRows)(inputs, training, validation)


def suits(model: nn.Module, graph: PreparedGraph) -> bool:
    """Whether it is our GCN on the CPU, with two layers, our BatchNorm, no dropout, no hooks, and features given."""
    if graph.device.type != "cpu" or type(model) is not GCN or staged(model) is not model:
        return False
    if len(model.weights) != 2 or len(model.norms) != 1:
        return False
    norm, nodes = cast(Any, model.norms[0]), graph.x.shape[0]
    usual = type(norm) is nn.BatchNorm1d and norm.affine and norm.track_running_stats and norm.momentum is not None
    hooked = any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in model.modules())
    return bool(usual) and not hooked and model.dropout == 0 and nodes > 1 and not graph.x.requires_grad
