"""SGFormer: one simple attention over all nodes beside a GCN."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.errors import is_number, require, require_whole
from gnnsafe.models.base import Model
from gnnsafe.models.inputs import check_fits, product
from gnnsafe.models.known import known_graph
from gnnsafe.outputs import Penultimate
from gnnsafe.prepared import Features, PreparedGraph
from gnnsafe.sparse import Matrix

__all__ = ["SGFormer", "simple_attention"]

EPSILON = 1e-6  # in place of a 0 in queries and keys, as published


class SGFormer(Model):
    """SGFormer: logits of w · GCN(x) + (1 − w) · attention over all nodes, linear in their number (Wu et al., 2023).

    Attention, `attention_layers` times: H ← ReLU(LayerNorm(½ (attend(H) + H))). The GCN, `num_layers` times: H ←
    ReLU(BatchNorm(Â H W)) + H₀. Equal to PyG's `SGFormer` with the same weights; a bias before BatchNorm has no
    gradient, so there is none. Every node attends to every other: it has no receptive field in hops, and a node is not
    alone in a graph without edges.

    Args:
        in_channels: How many features a node has.
        hidden_channels: The width of hidden layers.
        out_channels: How many classes (or labels) there are.
        num_layers: How many layers the GCN has.
        dropout: The share of hidden units dropped in training, below 1.
        attention_layers: How many layers the attention has.
        graph_weight: w, how much the GCN counts, from 0 to 1.

    Raises:
        InputError: An argument breaks its rule.

    >>> model = SGFormer(3, 8, 2)
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
        attention_layers: int = 1,
        graph_weight: float = 0.5,
    ) -> None:
        super().__init__()
        sizes = {"in_channels": in_channels, "hidden_channels": hidden_channels, "out_channels": out_channels}
        for name, size in {**sizes, "num_layers": num_layers, "attention_layers": attention_layers}.items():
            require_whole(name, size, 1)
        require(is_number(dropout) and 0 <= dropout < 1, "dropout", "lie in [0, 1)", dropout)
        require(is_number(graph_weight) and 0 <= graph_weight <= 1, "graph_weight", "lie in [0, 1]", graph_weight)
        width = hidden_channels
        self.weight = nn.Parameter(torch.empty(in_channels, 2 * width))  # of the attention, then of the GCN
        self.bias = nn.Parameter(torch.empty(width))
        self.queries, self.keys, self.values = (
            nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(attention_layers)) for _ in range(3)
        )
        self.layer_norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(attention_layers + 1))
        self.convolutions = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(num_layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(num_layers + 1))
        self.penultimate = Penultimate()
        self.head = nn.Linear(width, out_channels)
        self.in_channels, self.dropout, self.graph_weight = in_channels, dropout, graph_weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the weights."""
        for part in self.weight.detach().chunk(2, dim=1):
            nn.init.xavier_uniform_(part)
        nn.init.zeros_(self.bias)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm | nn.BatchNorm1d):
                module.reset_parameters()

    def forward(self, x: Tensor | PreparedGraph, edge_index: Tensor | None = None) -> Tensor:
        """Logits, [nodes, classes], of features and edges or of a prepared graph."""
        inputs = self.prepare(known_graph(x, edge_index))
        return self.tail(self.stem(inputs), inputs)

    def prepare(self, graph: PreparedGraph) -> tuple[Features, Matrix]:
        """X and Â: what depends on the graph alone."""
        check_fits(graph, self.in_channels, self.weight)
        return graph.features, graph.edges.convolution(graph.x.dtype)

    def stem(self, inputs: tuple[Features, Matrix]) -> Tensor:
        """X W of both branches."""
        return product(inputs[0], self.weight)

    def tail(self, hidden: Tensor, inputs: tuple[Features, Matrix]) -> Tensor:
        """From the first products to the logits."""
        everywhere, near = hidden.chunk(2, dim=1)
        attended, convolved = self._attended(everywhere + self.bias), self._convolved(near, inputs[1])
        both = attended + self.graph_weight * (convolved - attended)  # `lerp` takes no two types, as autocast gives
        logits: Tensor = self.head(self.penultimate(both))
        return logits

    def _attended(self, hidden: Tensor) -> Tensor:
        norms, *others = self.layer_norms
        hidden = self._dropped(F.relu(norms(hidden)))
        for query, key, value, norm in zip(self.queries, self.keys, self.values, others, strict=True):
            attended = simple_attention(query(hidden), key(hidden), value(hidden))
            hidden = self._dropped(F.relu(norm((attended + hidden) / 2)))
        return hidden

    def _convolved(self, hidden: Tensor, adjacency: Matrix) -> Tensor:
        norm, *others = self.norms
        hidden = first = self._dropped(F.relu(norm(hidden)))
        for convolution, norm in zip(self.convolutions, others, strict=True):
            hidden = self._dropped(F.relu(norm(adjacency @ convolution(hidden)))) + first
        return hidden

    def _dropped(self, hidden: Tensor) -> Tensor:
        return F.dropout(hidden, self.dropout, self.training)


def simple_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """(N v_i + q̂_i Σ_j k̂_jᵀ v_j) / (N + q̂_i Σ_j k̂_j) over all N nodes, never a matrix of all pairs.

    >>> one = torch.ones(2, 1)
    >>> simple_attention(one, one, torch.tensor([[0.0], [3.0]])).tolist()  # (2 v_i + 3) / 4
    [[0.75], [2.25]]
    """
    q, k = (F.normalize(rows.where(rows != 0, EPSILON), dim=1, eps=0.0) for rows in (queries, keys))
    nodes = len(values)
    return (nodes * values + q @ (k.T @ values)) / (nodes + q @ k.sum(dim=0, keepdim=True).T)
