"""The passes of a two-layer GCN over one graph, on the rows that are read, with gradients written by hand.

M = ÂX does not change. In training mode the network is

    S = M W₁,   μ and σ² the mean and variance of the rows of S,   r = 1 / √(σ² + ε),   x̂ = (S − μ) r
    H = relu(γ x̂ + β),   Z = Â H W₂ + b

and of Z only the rows that the loss reads are wanted, then (with BatchNorm's running statistics for μ and σ²) those of
validation. So Â keeps only these rows. Back from G = ∂Z:

    ∂b = Σ_i G_i,   P = Âᵀ G,   ∂W₂ = Hᵀ P,   D = P W₂ᵀ where H > 0 and 0 elsewhere,
    ∂β = Σ_i D_i,   ∂γ = Σ_i D_i x̂_i,   ∂S = γ r (D − ∂β / N − x̂ ∂γ / N),   ∂W₁ = Mᵀ ∂S.

`AllRows` does this as it stands. S itself is needed on all rows only for μ, σ² and ∂W₁, and these follow from the mean
m and the covariance C of the rows of M, which do not change either: `FewRows` has S only on the rows that Â reads, and

    μ = m W₁,   σ² = diag(W₁ᵀ C W₁),   ∂W₁ = γ r (Mᵀ D − m ∂β − r C W₁ ∂γ)   (Mᵀ(S − μ) = N C W₁; factors by column).

That pays where M is dense and its features are fewer than the rows it saves. The validation pass of an epoch and the
training pass of the next share S, which has the same weights in both.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gnnsafe.graph import Graph
from gnnsafe.models.gcn import GCN
from gnnsafe.models.inputs import ConvolutionInputs, product
from gnnsafe.models.staged import staged
from gnnsafe.sparse import Sparse, scipy_csr

__all__ = ["TwoLayers", "suits"]


class Normed(NamedTuple):
    """What normalising leaves for the way back: H, μ, r and, where S has few rows, C W₁."""

    hidden: Tensor
    mean: Tensor
    scale: Tensor
    spread: Tensor | None = None

    def gradients(self, stem: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
        """∂γ and ∂β from D."""
        beta = back.sum(dim=0)
        return ((stem * back).sum(dim=0) - self.mean * beta) * self.scale, beta


class AllRows:
    """S on all rows, its moments taken from it."""

    def __init__(self, inputs: ConvolutionInputs, training: Any, validation: Any) -> None:
        self.inputs, self.training, self.validation = inputs, Sparse(training), Sparse(validation)
        self.for_training = self.for_validation = slice(None)

    def stem(self, weight: Tensor) -> Tensor:
        """S."""
        return self.inputs.convolve(weight)

    def normed(self, stem: Tensor, weight: Tensor, norm: Any) -> Normed:
        """H; BatchNorm's running statistics move."""
        parameters = norm.weight, norm.bias, norm.running_mean, norm.running_var
        hidden, mean, scale = torch.native_batch_norm(stem, *parameters, True, norm.momentum, norm.eps)
        return Normed(hidden.relu_(), mean, scale)

    def weight_gradient(self, stem: Tensor, back: Tensor, normed: Normed, gamma: Tensor, beta: Tensor) -> Tensor:
        """∂W₁ / γ r from D, ∂γ and ∂β."""
        slope = normed.scale * gamma / len(stem)
        back = back.sub_(beta / len(stem) - normed.mean * slope).addcmul_(stem, slope, value=-1)
        return self.inputs.convolved_back(back)


class FewRows:
    """S on the rows that Â reads, its moments those of M."""

    def __init__(self, inputs: ConvolutionInputs, training: Any, validation: Any) -> None:
        features: Any = inputs.features
        once, again = np.unique(training.indices), np.unique(validation.indices)
        both = np.intersect1d(once, again)
        rows = np.concatenate([np.setdiff1d(once, both), both, np.setdiff1d(again, both)])  # a slice for each pass
        self.for_training, self.for_validation = slice(0, len(once)), slice(len(once) - len(both), None)
        self.training = Sparse(training[:, rows[self.for_training]])
        self.validation = Sparse(validation[:, rows[self.for_validation]])
        self.features, self.nodes = features[torch.from_numpy(rows)], len(features)
        self.mean, self.covariance = inputs.moments

    def stem(self, weight: Tensor) -> Tensor:
        """S."""
        return product(self.features, weight)

    def normed(self, stem: Tensor, weight: Tensor, norm: Any) -> Normed:
        """H; BatchNorm's running statistics move."""
        mean, spread = self.mean @ weight, self.covariance @ weight
        variance = (weight * spread).sum(dim=0)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (self.nodes / (self.nodes - 1)), norm.momentum)
        scale = (variance + norm.eps).rsqrt()
        factor = norm.weight * scale
        return Normed(torch.addcmul(norm.bias - mean * factor, stem, factor).relu_(), mean, scale, spread)

    def weight_gradient(self, stem: Tensor, back: Tensor, normed: Normed, gamma: Tensor, beta: Tensor) -> Tensor:
        """∂W₁ / γ r from D, ∂γ and ∂β."""
        assert normed.spread is not None
        heard: Tensor = (back.T @ self.features[self.for_training]).T
        return heard - torch.outer(self.mean, beta) - normed.spread * (normed.scale * gamma)


class _Logits(torch.autograd.Function):
    """Z of the training rows from S, which is a function of W₁, and the other weights."""

    @staticmethod
    def forward(ctx: Any, rows: AllRows | FewRows, norm: Any, stem: Tensor, *weights: Tensor) -> Tensor:
        first, gamma, _, last, bias = weights
        ctx.rows, ctx.stem, ctx.normed = rows, stem, rows.normed(stem, first, norm)
        ctx.save_for_backward(gamma, last)
        return (rows.training @ product(ctx.normed.hidden, last)).add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (scale, last), normed = ctx.saved_tensors, ctx.normed
        logits = gradients[0].contiguous()
        spread = ctx.rows.training.T @ logits  # P
        back = torch.ops.aten.threshold_backward(spread @ last.T, normed.hidden, 0)  # D
        gamma, beta = normed.gradients(ctx.stem, back)
        first = ctx.rows.weight_gradient(ctx.stem, back, normed, gamma, beta) * (scale * normed.scale)
        return None, None, None, first, gamma, beta, (spread.T @ normed.hidden).T, logits.sum(dim=0)


class TwoLayers:
    """The passes of a model that `suits` over one graph."""

    def __init__(self, model: GCN, graph: Graph, training: Tensor, validation: Tensor) -> None:
        inputs = model.prepare(graph.x, graph.edge_index)
        adjacency = scipy_csr(inputs.adjacency.csr)
        self.model, self.norm = model, cast(Any, model.norms[0])
        self.rows = _rows(inputs, *(adjacency[rows.numpy()] for rows in (training, validation)))
        self.stem: Tensor | None = None

    def training(self) -> Tensor:
        """Logits of the training rows, with gradients."""
        model, norm, rows = self.model, self.norm, self.rows
        stem = rows.stem(model.weights[0].detach()) if self.stem is None else self.stem
        self.stem = None
        norm.num_batches_tracked.add_(1)
        weights = model.weights[0], norm.weight, norm.bias, model.weights[1], model.biases[0]
        logits: Tensor = _Logits.apply(rows, norm, stem[rows.for_training], *weights)  # type: ignore[no-untyped-call]
        return logits

    @torch.no_grad()
    def validation(self) -> Tensor:
        """Logits of the validation rows; S is kept for the training pass of the same weights."""
        model, rows = self.model, self.rows
        self.stem = rows.stem(model.weights[0])
        scale, shift = model.folded(0)
        hidden = torch.addcmul(shift, self.stem[rows.for_validation], scale).relu_()
        return (rows.validation @ product(hidden, model.weights[1])).add_(model.biases[0])


def _rows(inputs: ConvolutionInputs, training: Any, validation: Any) -> AllRows | FewRows:
    """The route with fewer multiplications per output column of the first layer."""
    if not (isinstance(inputs.features, Tensor) and inputs.aggregated):
        return AllRows(inputs, training, validation)
    nodes, features = inputs.features.shape
    read = len(np.union1d(training.indices, validation.indices))
    return (FewRows if read + features < nodes else AllRows)(inputs, training, validation)


def suits(model: nn.Module, graph: Graph) -> bool:
    """A GCN of ours with two layers, BatchNorm as we make it, no dropout and no hooks, and features that are given."""
    if type(model) is not GCN or staged(model) is not model or len(model.weights) != 2 or len(model.norms) != 1:
        return False
    norm, nodes = cast(Any, model.norms[0]), graph.x.shape[0]
    usual = type(norm) is nn.BatchNorm1d and norm.affine and norm.track_running_stats and norm.momentum is not None
    hooked = any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in model.modules())
    return bool(usual) and not hooked and model.dropout == 0 and nodes > 1 and not graph.x.requires_grad
