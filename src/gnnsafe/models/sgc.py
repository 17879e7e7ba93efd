"""Simplified graph convolution: all of a GCN's hops and none of its layers."""

from __future__ import annotations

from torch import Tensor

from gnnsafe.models.gcn import GCN
from gnnsafe.models.inputs import ConvolutionInputs, convolution_inputs
from gnnsafe.prepared import PreparedGraph

__all__ = ["SGC"]


class SGC(GCN):
    """Simplified graph convolution: logits Â^K X W + b with K = `num_layers` (Wu et al., 2019).

    Equal to PyG's `SGConv` with the same weights. There is no hidden layer: `hidden_channels`, `dropout` and
    `batch_norm`, which every model takes, have nothing to act on, and the embedding that it gives to methods is the
    logits (Â^K X would be as wide as X, and full).

    >>> import torch
    >>> model = SGC(3, 8, 2)
    >>> model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    @staticmethod
    def widths(in_channels: int, hidden_channels: int, out_channels: int, num_layers: int) -> list[int]:
        """One linear layer, whatever the number of hops."""
        return [in_channels, out_channels]

    def read(self, graph: PreparedGraph) -> ConvolutionInputs:
        """Â, and as much of Â^K X as is worth having."""
        return convolution_inputs(graph, hops=self.num_layers)

    def tail(self, hidden: Tensor, inputs: ConvolutionInputs) -> Tensor:
        """The logits."""
        logits: Tensor = self.penultimate(super().tail(hidden, inputs))
        return logits
