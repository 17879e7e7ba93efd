"""Predictions of a multi-layer perceptron, spread by personalised PageRank."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnsafe.errors import is_number, require, require_whole
from gnnsafe.models.base import Backbone
from gnnsafe.models.inputs import ConvolutionInputs, convolution_inputs, product
from gnnsafe.prepared import PreparedGraph

__all__ = ["APPNP"]


class APPNP(Backbone):
    """Predict, then propagate: Z ← (1−α) Â Z + α MLP(X), `steps` times from Z = MLP(X) (Gasteiger et al., 2019).

    Equal to PyG's `APPNP` after an `MLP` of gnnsafe.models with the same weights. Its penultimate embedding is that of
    the MLP, which no edge has touched yet.

    Args:
        in_channels: How many features a node has.
        hidden_channels: The width of hidden layers.
        out_channels: How many classes (or labels) there are.
        num_layers: How many linear layers the MLP has.
        dropout: The share of hidden units dropped in training, below 1.
        batch_norm: Whether BatchNorm comes after hidden layers.
        steps: How often predictions are propagated.
        alpha: α, how much of the MLP's prediction stays at each step, from 0 to 1.

    Raises:
        InputError: An argument breaks its rule.

    >>> model = APPNP(3, 8, 2, steps=10, alpha=0.1)
    >>> model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        *,
        dropout: float = 0.0,
        batch_norm: bool = True,
        steps: int = 10,
        alpha: float = 0.1,
    ) -> None:
        require_whole("steps", steps, 0)
        require(is_number(alpha) and 0 <= alpha <= 1, "alpha", "lie in [0, 1]", alpha)
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, dropout=dropout, batch_norm=batch_norm)
        self.steps, self.alpha = steps, alpha

    @property
    def reach(self) -> int:
        """One edge further with each step."""
        return self.steps

    def read(self, graph: PreparedGraph) -> ConvolutionInputs:
        """Â and X."""
        return convolution_inputs(graph, hops=0)

    def stem(self, inputs: ConvolutionInputs) -> Tensor:
        """The first layer's X W."""
        return inputs.convolve(self.weights[0])

    def layer(self, hidden: Tensor, index: int, inputs: ConvolutionInputs) -> Tensor:
        """H W."""
        return product(hidden, self.weights[index])

    def tail(self, hidden: Tensor, inputs: ConvolutionInputs) -> Tensor:
        """From the first layer to the MLP's predictions, and from them to the logits."""
        predictions = super().tail(hidden, inputs)
        logits = predictions
        for _ in range(self.steps):
            logits = torch.lerp(inputs.adjacency @ logits, predictions, self.alpha)
        return logits
