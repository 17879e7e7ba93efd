"""Multi-layer perceptron: every node by its own features."""

from __future__ import annotations

from torch import Tensor

from gnnsafe.checks import check_edge_index
from gnnsafe.models.base import Backbone
from gnnsafe.models.inputs import Features, feature_matrix, product

__all__ = ["MLP"]


class MLP(Backbone):
    """Multi-layer perceptron: H ← Dropout(ReLU(BatchNorm(H W))), logits H W + b (Rumelhart et al., 1986).

    It is blind to edges. Equal to a stack of `torch.nn.Linear` with the same weights; `weights[k]` is the
    transpose of its k-th `weight`.

    >>> import torch
    >>> model = MLP(3, 8, 2)
    >>> model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    @property
    def reach(self) -> int:
        """It hears of nobody."""
        return 0

    def read(self, x: Tensor, edge_index: Tensor) -> Features:
        """X; edges are checked, so that a graph is good for all models or for none."""
        features = feature_matrix(x)
        check_edge_index(edge_index, len(x))
        return features

    def stem(self, inputs: Features) -> Tensor:
        """The first layer's X W."""
        return product(inputs, self.weights[0])

    def layer(self, hidden: Tensor, index: int, inputs: Features) -> Tensor:
        """H W."""
        return product(hidden, self.weights[index])
