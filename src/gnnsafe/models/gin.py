"""Graph isomorphism network: sums, which tell neighbourhoods apart that means confuse."""

from __future__ import annotations

from torch import Tensor

from gnnsafe.models.base import Backbone
from gnnsafe.models.inputs import ConvolutionInputs, convolution_inputs, product
from gnnsafe.prepared import PreparedGraph

__all__ = ["GIN"]


class GIN(Backbone):
    """Graph isomorphism network: H ← Dropout(ReLU(BatchNorm(MLP((A + I) H)))), logits MLP((A + I) H) (Xu et al., 2019).

    Each of `num_layers` MLPs has two linear layers with BatchNorm and ReLU between them: `weights[2k]` and
    `weights[2k + 1]`. Equal to a stack of PyG's `GINConv` (ε = 0) around such MLPs.

    >>> import torch
    >>> model = GIN(3, 8, 2)
    >>> model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    @staticmethod
    def widths(in_channels: int, hidden_channels: int, out_channels: int, num_layers: int) -> list[int]:
        """Two linear layers to every sum."""
        return [in_channels] + [hidden_channels] * (2 * num_layers - 1) + [out_channels]

    def read(self, graph: PreparedGraph) -> ConvolutionInputs:
        """A + I, and X or (A + I) X."""
        return convolution_inputs(graph, "sum")

    def stem(self, inputs: ConvolutionInputs) -> Tensor:
        """The first linear layer's (A + I) X W."""
        return inputs.convolve(self.weights[0])

    def layer(self, hidden: Tensor, index: int, inputs: ConvolutionInputs) -> Tensor:
        """H W, in every second layer (A + I) H W."""
        linear = product(hidden, self.weights[index])
        return linear if index % 2 else inputs.adjacency @ linear
