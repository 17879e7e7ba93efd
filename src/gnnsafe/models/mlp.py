"""Multi-layer perceptron: every node by its own features."""

from __future__ import annotations

from torch import Tensor

from gnnsafe.models.base import Backbone
from gnnsafe.models.inputs import product
from gnnsafe.prepared import Features, PreparedGraph

__all__ = ["MLP"]


class MLP(Backbone):
    """Multi-layer perceptron: H ← Dropout(ReLU(BatchNorm(H W))), logits H W + b (Rumelhart et al., 1986).

    It is blind to edges. Equal to a stack of `torch.nn.Linear` with the same weights; `weights[k]` is the
    transpose of its k-th `weight`.

    Args:
        in_channels: How many features a node has.
        hidden_channels: The width of hidden layers.
        out_channels: How many classes (or labels) there are.
        num_layers: How many linear layers.
        dropout: The share of hidden units dropped in training, below 1.
        batch_norm: Whether BatchNorm comes after hidden layers.

    Raises:
        InputError: An argument breaks its rule.

    >>> import torch
    >>> model = MLP(3, 8, 2)
    >>> model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    @property
    def reach(self) -> int:
        """Zero hops: it reads no edges."""
        return 0

    def read(self, graph: PreparedGraph) -> Features:
        """X."""
        return graph.features

    def stem(self, inputs: Features) -> Tensor:
        """The first layer's X W."""
        return product(inputs, self.weights[0])

    def layer(self, hidden: Tensor, index: int, inputs: Features) -> Tensor:
        """H W."""
        return product(hidden, self.weights[index])
