"""Graph convolutional network on constant sparse matrices."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.errors import is_number, require, require_whole
from gnnsafe.models.inputs import ConvolutionInputs, convolution_inputs
from gnnsafe.outputs import Penultimate

__all__ = ["GCN"]


class GCN(nn.Module):
    """Graph convolutional network: H ← Dropout(ReLU(BatchNorm(Â H W))), logits Â H W + b (Kipf & Welling, 2017).

    Equal to a stack of PyG's `GCNConv` with the same weights; `weights[k]` is the transpose of its k-th
    `lin.weight`. A bias before BatchNorm has no gradient, so there is none. Features may be dense or sparse CSR.

    >>> model = GCN(3, 8, 2)
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
    ) -> None:
        super().__init__()
        sizes = {"in_channels": in_channels, "hidden_channels": hidden_channels, "out_channels": out_channels}
        for name, size in {**sizes, "num_layers": num_layers}.items():
            require_whole(name, size, 1)
        require(is_number(dropout) and 0 <= dropout < 1, "dropout", "lie in [0, 1)", dropout)
        widths = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.weights = nn.ParameterList(torch.empty(m, n) for m, n in pairwise(widths))
        self.biases = nn.ParameterList(torch.empty(n) for n in (widths[-1:] if batch_norm else widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(n) for n in widths[1:-1] if batch_norm)
        self.penultimate = Penultimate()
        self.in_channels, self.dropout = in_channels, dropout
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew, as PyG's `GCNConv` does: Glorot uniform, biases zero."""
        for weight in self.weights:
            nn.init.xavier_uniform_(weight)
        for bias in self.biases:
            nn.init.zeros_(bias)
        for norm in self.norms:
            assert isinstance(norm, nn.BatchNorm1d)
            norm.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, [nodes, classes]."""
        inputs = self.prepare(x, edge_index)
        return self.tail(self.stem(inputs), inputs)

    def prepare(self, x: Tensor, edge_index: Tensor) -> ConvolutionInputs:
        """Â, and X or ÂX: what depends on the graph alone."""
        if isinstance(x, Tensor) and x.dim() == 2:  # else there are no features to count, as is said below
            require(x.shape[1] == self.in_channels, "x", f"have {self.in_channels} features", x.shape[1])
            dtype = self.weights[0].dtype
            require(x.dtype == dtype, "x", f"be {dtype} as the model is", x.dtype, "call x.to(...) or model.to(...)")
        return convolution_inputs(x, edge_index)

    def stem(self, inputs: ConvolutionInputs) -> Tensor:
        """The first layer's Â X W, before anything that differs between training and evaluation."""
        return inputs.convolve(self.weights[0])

    def tail(self, hidden: Tensor, inputs: ConvolutionInputs) -> Tensor:
        """From the first layer's product to the logits."""
        for layer in range(1, len(self.weights)):
            hidden = self.norms[layer - 1](hidden) if self.norms else hidden + self.biases[layer - 1]
            hidden = F.relu(hidden)
            if layer == len(self.weights) - 1:
                hidden = self.penultimate(hidden)
            hidden = F.dropout(hidden, self.dropout, self.training)
            # BLAS wants the few columns of a narrow weight as rows, forward and backward.
            hidden = inputs.adjacency @ F.linear(hidden, self.weights[layer].T.contiguous())
        logits: Tensor = hidden + self.biases[-1]
        return logits
