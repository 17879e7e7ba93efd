"""Graph attention network: neighbours weighed by what they and the node are."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.attention import Pattern
from gnnsafe.errors import require_whole
from gnnsafe.models.base import Backbone, glorot
from gnnsafe.models.inputs import product
from gnnsafe.prepared import Features, PreparedGraph

__all__ = ["GAT"]

SLOPE = 0.2  # of the LeakyReLU, as published


@dataclass(frozen=True)
class AttentionInputs:
    """A graph as attention reads it: X, and the edges of the hidden layers' heads and of the last layer's."""

    features: Features
    hidden: Pattern
    last: Pattern


class GAT(Backbone):
    """Graph attention: h_i ← Σ_j α_ij W h_j, α_i = softmax_j(LeakyReLU(a·W h_j + b·W h_i)) (Veličković et al., 2018).

    Hidden layers have `heads` heads side by side, BatchNorm and ELU, the last layer has one head. Equal to a stack of
    PyG's `GATConv` with the same weights: a self-loop counts once and each edge as often as it is given. Dropout
    is that of the hidden layers; attention is not dropped.

    Args:
        in_channels: How many features a node has.
        hidden_channels: The width of each head in hidden layers.
        out_channels: How many classes (or labels) there are.
        num_layers: How many message-passing layers.
        dropout: The share of hidden units dropped in training, below 1.
        batch_norm: Whether BatchNorm comes after hidden layers.
        heads: How many heads hidden layers have.

    Raises:
        InputError: An argument breaks its rule.

    >>> import torch
    >>> model = GAT(3, 8, 2, heads=4)
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
        heads: int = 2,
    ) -> None:
        for name, size in {"hidden_channels": hidden_channels, "heads": heads}.items():
            require_whole(name, size, 1)
        hidden = heads * hidden_channels
        super().__init__(in_channels, hidden, out_channels, num_layers, dropout=dropout, batch_norm=batch_norm)
        shapes = [(heads, hidden_channels)] * (num_layers - 1) + [(1, out_channels)]
        self.sources = nn.ParameterList(glorot(*shape) for shape in shapes)
        self.targets = nn.ParameterList(glorot(*shape) for shape in shapes)
        self.heads = heads

    def read(self, graph: PreparedGraph) -> AttentionInputs:
        """X, and the edges sorted by target."""
        return AttentionInputs(graph.features, graph.edges.attention(self.heads), graph.edges.attention(1))

    def stem(self, inputs: AttentionInputs) -> Tensor:
        """The first layer: attention on X W."""
        return self.attend(product(inputs.features, self.weights[0]), 0, inputs)

    def layer(self, hidden: Tensor, index: int, inputs: AttentionInputs) -> Tensor:
        """Attention on H W."""
        return self.attend(product(hidden, self.weights[index]), index, inputs)

    @staticmethod
    def activation(hidden: Tensor) -> Tensor:
        """ELU."""
        return F.elu(hidden, inplace=True)

    def attend(self, values: Tensor, index: int, inputs: AttentionInputs) -> Tensor:
        """Σ_j α_ij v_j for every node i and head, [nodes, heads · channels]."""
        source, target = self.sources[index], self.targets[index]
        edges = inputs.last if index == self.num_layers - 1 else inputs.hidden
        by_head = values.view(-1, *source.shape)
        from_source, to_target = ((by_head * vector).sum(dim=2).flatten() for vector in (source, target))
        scores = F.leaky_relu(from_source.index_select(0, edges.columns) + to_target.index_select(0, edges.rows), SLOPE)
        return edges.average(scores, by_head.flatten(0, 1)).view_as(values)
