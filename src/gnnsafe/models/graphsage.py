"""GraphSAGE: a node and the mean of its neighbours."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from gnnsafe.models.base import Backbone
from gnnsafe.models.inputs import ConvolutionInputs, convolution_inputs, product
from gnnsafe.prepared import Features, PreparedGraph

__all__ = ["GraphSAGE"]


class GraphSAGE(Backbone):
    """GraphSAGE: H ← Dropout(ReLU(BatchNorm(D⁻¹A H W + H R))), logits D⁻¹A H W + H R + b (Hamilton et al., 2017).

    Equal to a stack of PyG's `SAGEConv` with the same weights; `weights[k]` has the transpose of its k-th
    `lin_l.weight` (W) above that of `lin_r.weight` (R).

    >>> model = GraphSAGE(3, 8, 2)
    >>> model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    matrices: ClassVar[int] = 2

    def read(self, graph: PreparedGraph) -> tuple[ConvolutionInputs, Features]:
        """D⁻¹A, X or D⁻¹A X, and X."""
        return convolution_inputs(graph, "mean"), graph.features

    def stem(self, inputs: tuple[ConvolutionInputs, Features]) -> Tensor:
        """The first layer's D⁻¹A X W + X R."""
        neighbours, own = self.weights[0].chunk(2)
        return inputs[0].convolve(neighbours) + product(inputs[1], own)

    def layer(self, hidden: Tensor, index: int, inputs: tuple[ConvolutionInputs, Features]) -> Tensor:
        """D⁻¹A H W + H R."""
        both = product(hidden, torch.cat(self.weights[index].chunk(2), dim=1))
        neighbours, own = both.chunk(2, dim=1)
        return inputs[0].adjacency @ neighbours + own
