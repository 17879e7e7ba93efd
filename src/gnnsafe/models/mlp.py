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
