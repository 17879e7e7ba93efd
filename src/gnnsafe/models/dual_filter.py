"""What neighbours share and what they differ in, side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnsafe.errors import require_whole
from gnnsafe.models.base import Backbone, glorot
from gnnsafe.models.inputs import ConvolutionInputs, convolution_inputs, product
from gnnsafe.prepared import PreparedGraph

__all__ = ["DualFilter"]


class DualFilter(Backbone):
    """Dual filter with residuals: H ← H + ReLU(BatchNorm([ÂHW_l | (I − Â)HW_h])), logits HW + b (DSS-Hybrid, 2026).

    A low-pass branch, the mean of the surroundings, and a high-pass one, what a node has beyond it, of half the hidden
    channels each. The first layer, whose widths differ, has no residual; the linear `head` reads the last.

    Args:
        in_channels: How many features a node has.
        hidden_channels: The width of hidden layers, both branches together.
        out_channels: How many classes (or labels) there are.
        num_layers: How many message-passing layers.
        dropout: The share of hidden units dropped in training, below 1.
        batch_norm: Whether BatchNorm comes after hidden layers.

    Raises:
        InputError: An argument breaks its rule.

    >>> model = DualFilter(3, 8, 2)
    >>> model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    bare = 0

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        *,
        dropout: float = 0.0,
        batch_norm: bool = True,
    ) -> None:
        require_whole("hidden_channels", hidden_channels, 1)
        require_whole("out_channels", out_channels, 1)
        hidden = 2 * -(-hidden_channels // 2)
        super().__init__(in_channels, hidden, out_channels, num_layers, dropout=dropout, batch_norm=batch_norm)
        self.head = glorot(hidden, out_channels)
        self.biases.append(torch.nn.Parameter(torch.zeros(out_channels)))

    @staticmethod
    def widths(in_channels: int, hidden_channels: int, out_channels: int, num_layers: int) -> list[int]:
        """Every layer gives hidden channels; the head comes after them."""
        return [in_channels] + [hidden_channels] * num_layers

    def read(self, graph: PreparedGraph) -> tuple[ConvolutionInputs, ConvolutionInputs]:
        """X, and Â with X or ÂX."""
        return convolution_inputs(graph, hops=0), convolution_inputs(graph)

    def stem(self, inputs: tuple[ConvolutionInputs, ConvolutionInputs]) -> Tensor:
        """The first layer's [ÂXW_l | XW_h − ÂXW_h]."""
        own, averaged = (part.convolve(self.weights[0]) for part in inputs)
        return _filtered(own, averaged)

    def layer(self, hidden: Tensor, index: int, inputs: tuple[ConvolutionInputs, ConvolutionInputs]) -> Tensor:
        """[ÂHW_l | HW_h − ÂHW_h]."""
        own = product(hidden, self.weights[index])
        return _filtered(own, inputs[1].adjacency @ own)

    def tail(self, hidden: Tensor, inputs: tuple[ConvolutionInputs, ConvolutionInputs]) -> Tensor:
        """From the first layer to the logits."""
        hidden = self.activated(hidden, 0)
        for index in range(1, self.num_layers):
            hidden = hidden + self.activated(self.layer(self.dropped(hidden), index, inputs), index)
        logits: Tensor = product(self.dropped(self.penultimate(hidden)), self.head) + self.biases[-1]
        return logits


def _filtered(own: Tensor, averaged: Tensor) -> Tensor:
    """Low-pass in the first half of the channels, high-pass in the second."""
    half = own.shape[1] // 2
    return torch.cat([averaged[:, :half], own[:, half:] - averaged[:, half:]], dim=1)
