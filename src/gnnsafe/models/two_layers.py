"""The passes of a two-layer GCN over one graph, on the rows that are read, with gradients written by hand.

M = ÂX does not change. In training mode the network is

    S = M W₁,   μ and σ² the mean and variance of the rows of S,   r = 1 / √(σ² + ε),   x̂ = (S − μ) r
    H = relu(γ x̂ + β),   Z = Â H W₂ + b

and of Z only the rows that the loss reads are wanted, then (with BatchNorm's running statistics for μ and σ²) those of
validation. So Â keeps only these rows. Back from G = ∂Z:

    ∂b = Σ_i G_i,   P = Âᵀ G,   ∂W₂ = Hᵀ P,   D = P W₂ᵀ where H > 0 and 0 elsewhere,
    ∂β = Σ_i D_i,   ∂γ = Σ_i D_i x̂_i,   ∂S = γ r (D − ∂β / N − x̂ ∂γ / N),   ∂W₁ = Mᵀ ∂S.

`AllRows` does this as it stands. S itself is needed on all rows only for μ, σ² and ∂W₁, and these follow from the mean m
and the covariance C of the rows of M, which do not change either: `FewRows` has S only on the rows that Â reads, and

    μ = m W₁,   σ² = diag(W₁ᵀ C W₁),   ∂W₁ = γ r (Mᵀ D − m ∂β − r C W₁ ∂γ)   (Mᵀ(S − μ) = N C W₁; factors by column).

That pays where M is dense and its features are fewer than the rows it saves. The validation pass of an epoch and the
training pass of the next share S, which has the same weights in both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
    """What normalising left behind: H, μ, r and, of few rows, C W₁."""

    hidden: Tensor
    mean: Tensor
    scale: Tensor
    spread: Tensor | None = None


class AllRows:
    """S on all rows, its moments taken from it."""

    def __init__(self, inputs: ConvolutionInputs, training: Any, validation: Any) -> None:
        self.inputs, self.training, self.validation = inputs, Sparse(training), Sparse(validation)
        self.for_training = self.for_validation = slice(None)

    def stem(self, weight: Tensor) -> Tensor:
        """S."""
        return self.inputs.convolve(weight)

    def normed(self, stem: Tensor, weight: Tensor, norm: nn.BatchNorm1d) -> Normed:
        """H, and BatchNorm's running statistics moved."""
        running = norm.running_mean, norm.running_var
        hidden, mean, scale = torch.native_batch_norm(
            stem, norm.weight, norm.bias, *running, True, norm.momentum, norm.eps
        )
        return Normed(hidden.relu_(), mean, scale)

    def gradients(self, stem: Tensor, back: Tensor, normed: Normed, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """∂W₁, ∂γ, ∂β from D."""
        nodes, beta_back = len(stem), back.sum(dim=0)
        gamma_back = ((stem * back).sum(dim=0) - normed.mean * beta_back) * normed.scale
        slope = normed.scale * gamma_back / nodes
        stem_back = back.sub_(beta_back / nodes - normed.mean * slope).addcmul_(stem, slope, value=-1)
        return self.inputs.convolved_back(stem_back) * (gamma * normed.scale), gamma_back, beta_back


class FewRows:
    """S on the rows that Â reads, its moments those of M."""

    def __init__(self, inputs: ConvolutionInputs, training: Any, validation: Any) -> None:
        once, again = (np.unique(matrix.indices) for matrix in (training, validation))
        both = np.intersect1d(once, again)
        first, last = np.setdiff1d(once, both), np.setdiff1d(again, both)
        rows = np.concatenate([first, both, last])  # so that each pass reads one slice
        self.for_training, self.for_validation = slice(0, len(once)), slice(len(first), None)
        self.training, self.validation = Sparse(training[:, rows[self.for_training]]), Sparse(
            validation[:, rows[self.for_validation]]
        )
        self.features, (self.mean, self.covariance) = inputs.features[torch.from_numpy(rows)], inputs.moments
        self.nodes = len(inputs.features)

    def stem(self, weight: Tensor) -> Tensor:
        """S."""
        return product(self.features, weight)

    def normed(self, stem: Tensor, weight: Tensor, norm: nn.BatchNorm1d) -> Normed:
        """H, and BatchNorm's running statistics moved."""
        mean, spread = self.mean @ weight, self.covariance @ weight
        variance = (weight * spread).sum(dim=0)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (self.nodes / (self.nodes - 1)), norm.momentum)
        scale = (variance + norm.eps).rsqrt()
        factor = norm.weight * scale
        return Normed(torch.addcmul(norm.bias - mean * factor, stem, factor).relu_(), mean, scale, spread)

    def gradients(self, stem: Tensor, back: Tensor, normed: Normed, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """∂W₁, ∂γ, ∂β from D."""
        beta_back = back.sum(dim=0)
        gamma_back = ((stem * back).sum(dim=0) - normed.mean * beta_back) * normed.scale
        weight_back = (back.T @ self.features[self.for_training]).T
        weight_back = weight_back - torch.outer(self.mean, beta_back) - normed.spread * (normed.scale * gamma_back)
        return weight_back * (gamma * normed.scale), gamma_back, beta_back


class _Logits(torch.autograd.Function):
    """Z of the training rows, from S and the weights; S counts as a function of W₁, whose gradient is given."""

    @staticmethod
    def forward(
        ctx: Any, rows: AllRows | FewRows, norm: nn.BatchNorm1d, stem: Tensor, *weights: Tensor
    ) -> Tensor:
        first, gamma, _, last, bias = weights
        normed = rows.normed(stem, first, norm)
        ctx.rows, ctx.normed, ctx.stem = rows, normed, stem
        ctx.save_for_backward(gamma, last)
        return (rows.training @ product(normed.hidden, last)).add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gamma, last = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        hidden, stem = ctx.normed.hidden, ctx.stem
        spread = ctx.rows.training.T @ gradient
        last_back = (spread.T @ hidden).T
        back = torch.ops.aten.threshold_backward(spread @ last.T, hidden, 0)
        first_back, gamma_back, beta_back = ctx.rows.gradients(stem, back, ctx.normed, gamma)
        return None, None, None, first_back, gamma_back, beta_back, last_back, gradient.sum(dim=0)


class TwoLayers:
    """The passes of a model that `suits` over one graph."""

    def __init__(self, model: GCN, graph: Graph, training: Tensor, validation: Tensor) -> None:
        inputs = model.prepare(graph.x, graph.edge_index)
        adjacency = scipy_csr(inputs.adjacency.csr)
        read = [adjacency[rows.numpy()] for rows in (training, validation)]
        self.model, self.rows = model, _rows(inputs, *read)
        self.stem: Tensor | None = None

    def training(self) -> Tensor:
        """Logits of the training rows, with gradients."""
        model, stem = self.model, self.rows.stem(self.model.weights[0].detach()) if self.stem is None else self.stem
        self.stem, norm = None, model.norms[0]
        norm.num_batches_tracked.add_(1)
        weights = model.weights[0], norm.weight, norm.bias, model.weights[1], model.biases[0]
        return _Logits.apply(self.rows, norm, stem[self.rows.for_training], *weights)

    @torch.no_grad()
    def validation(self) -> Tensor:
        """Logits of the validation rows; S is kept for the training pass with the same weights."""
        model, self.stem = self.model, self.rows.stem(self.model.weights[0])
        hidden = model.activated(self.stem[self.rows.for_validation], 0)
        return (self.rows.validation @ product(hidden, model.weights[1])).add_(model.biases[0])


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
    norm, nodes = model.norms[0], graph.x.shape[0]
    usual = type(norm) is nn.BatchNorm1d and norm.affine and norm.track_running_stats and norm.momentum is not None
    hooked = any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in model.modules())
    return usual and not hooked and model.dropout == 0 and nodes > 1 and not graph.x.requires_grad
