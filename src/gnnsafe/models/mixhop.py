"""MixHop: neighbourhoods of several radii side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnsafe.errors import require_whole
from gnnsafe.models.base import Backbone, glorot
from gnnsafe.models.inputs import ConvolutionInputs, convolution_inputs, product
from gnnsafe.prepared import PreparedGraph

__all__ = ["MixHop"]


class MixHop(Backbone):
    """MixHop: H ← Dropout(ReLU(BatchNorm([H W₀ | Â H W₁ | … | Â^K H W_K]))), K = `hops` (Abu-El-Haija et al., 2019).

    The last layer gives `out_channels` for every power of Â, of which the linear `head` makes logits. Equal to a stack
    of PyG's `MixHopConv` with the same weights: `weights[k]` has its k-th layer's matrices side by side.

    Args:
        in_channels: How many features a node has.
        hidden_channels: The width of hidden layers, for each power of Â.
        out_channels: How many classes (or labels) there are.
        num_layers: How many message-passing layers.
        dropout: The share of hidden units dropped in training, below 1.
        batch_norm: Whether BatchNorm comes after hidden layers.
        hops: K, the highest power of Â.

    Raises:
        InputError: An argument breaks its rule.

    >>> model = MixHop(3, 8, 2, hops=2)
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
        hops: int = 2,
    ) -> None:
        for name, size in {"hidden_channels": hidden_channels, "out_channels": out_channels, "hops": hops}.items():
            require_whole(name, size, 1)
        hidden, out = (hops + 1) * hidden_channels, (hops + 1) * out_channels
        super().__init__(in_channels, hidden, out, num_layers, dropout=dropout, batch_norm=batch_norm)
        self.head = glorot(out, out_channels)
        self.hops = hops

    @property
    def reach(self) -> int:
        """As many edges in every layer as it has hops."""
        return self.num_layers * self.hops

    def read(self, graph: PreparedGraph) -> list[ConvolutionInputs]:
        """Â, and X, ÂX, …, Â^K X as far as they are worth having."""
        return [convolution_inputs(graph, hops=hops) for hops in range(self.hops + 1)]

    def stem(self, inputs: list[ConvolutionInputs]) -> Tensor:
        """The first layer's [X W₀ | Â X W₁ | …]."""
        weights = self.weights[0].chunk(self.hops + 1, dim=1)
        return torch.cat([hop.convolve(weight) for hop, weight in zip(inputs, weights, strict=True)], dim=1)

    def layer(self, hidden: Tensor, index: int, inputs: list[ConvolutionInputs]) -> Tensor:
        """[H W₀ | Â H W₁ | …]: all that is left is multiplied by Â, what has had its share leaves."""
        further, done = product(hidden, self.weights[index]), []
        channels = further.shape[1] // (self.hops + 1)
        for _ in range(self.hops):
            done.append(further[:, :channels])
            further = inputs[0].adjacency @ further[:, channels:]
        return torch.cat([*done, further], dim=1)

    def tail(self, hidden: Tensor, inputs: list[ConvolutionInputs]) -> Tensor:
        """From the first layer to the logits."""
        return product(super().tail(hidden, inputs), self.head)
