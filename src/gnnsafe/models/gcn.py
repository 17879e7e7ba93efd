"""Graph convolutional network on constant sparse matrices."""

from __future__ import annotations

from torch import Tensor

from gnnsafe.models.base import Backbone
from gnnsafe.models.inputs import ConvolutionInputs, convolution_inputs, product
from gnnsafe.prepared import PreparedGraph

__all__ = ["GCN"]


class GCN(Backbone):
    """Graph convolutional network: H ← Dropout(ReLU(BatchNorm(Â H W))), logits Â H W + b (Kipf & Welling, 2017).

    Equal to a stack of PyG's `GCNConv` with the same weights; `weights[k]` is the transpose of its k-th
    `lin.weight`.

    >>> import torch
    >>> model = GCN(3, 8, 2)
    >>> model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    def read(self, graph: PreparedGraph) -> ConvolutionInputs:
        """Â, and X or ÂX."""
        return convolution_inputs(graph)

    def stem(self, inputs: ConvolutionInputs) -> Tensor:
        """The first layer's Â X W."""
        return inputs.convolve(self.weights[0])

    def layer(self, hidden: Tensor, index: int, inputs: ConvolutionInputs) -> Tensor:
        """Â H W."""
        return inputs.adjacency @ product(hidden, self.weights[index])
