"""GPS: convolution and attention over all nodes, layer by layer."""

from __future__ import annotations

import math

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

__all__ = ["GPS", "GPSLayer", "performed_attention"]

EPSILON = 1e-3  # added to the kernel, as PyG's PerformerAttention does


class GPSLayer(nn.Module):
    """H ← BN(G + MLP(G)), G = BN(H + Â H W) + BN(H + attend(H)): PyG's `GPSConv` of a GCNConv and performer attention.

    A bias before BatchNorm has no gradient, so there is none.
    """

    projection: Tensor

    def __init__(self, channels: int, dropout: float) -> None:
        super().__init__()
        self.convolution, self.query, self.key, self.value, self.out = (
            nn.Linear(channels, channels, bias=False) for _ in range(5)
        )
        self.widen, self.narrow = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm1d(channels) for _ in range(3))
        self.register_buffer("projection", torch.empty(max(1, int(channels * math.log(channels))), channels))
        self.dropout = dropout

    def reset_parameters(self) -> None:
        """Reset the weights and the projection."""
        for module in self.children():
            for part in module if isinstance(module, nn.ModuleList) else [module]:
                part.reset_parameters()  # type: ignore[operator]
        rows, columns = self.projection.shape
        blocks = [torch.linalg.qr(torch.randn(columns, columns))[0].T for _ in range(-(-rows // columns))]
        self.projection.copy_(torch.cat(blocks)[:rows])

    def forward(self, hidden: Tensor, adjacency: Matrix) -> Tensor:
        """The layer's H."""
        local = self.norms[0](self._dropped(adjacency @ self.convolution(hidden)) + hidden)
        parts = self.query(hidden), self.key(hidden), self.value(hidden)
        everywhere = self.out(performed_attention(*parts, self.projection))
        both = local + self.norms[1](self._dropped(everywhere) + hidden)
        further = self._dropped(self.narrow(self._dropped(F.relu(self.widen(both)))))
        result: Tensor = self.norms[2](both + further)
        return result

    def _dropped(self, hidden: Tensor) -> Tensor:
        return F.dropout(hidden, self.dropout, self.training)


class GPS(Model):
    """GPS graph Transformer: layers of BN(H + ÂHW) + BN(H + attention over all nodes), linear (Rampášek et al., 2022).

    A linear layer, `num_layers` layers each equal to PyG's `GPSConv` of a `GCNConv` with attn_type="performer" and one
    head, and a linear head. Positional encodings, where one wants them, are features. Every node attends to every
    other: it has no receptive field in hops, and a node is not alone in a graph without edges.

    Args:
        in_channels: How many features a node has.
        hidden_channels: The width of hidden layers.
        out_channels: How many classes (or labels) there are.
        num_layers: How many layers of message passing and attention.
        dropout: The share of hidden units dropped in training, below 1.

    Raises:
        InputError: An argument breaks its rule.

    >>> model = GPS(3, 8, 2)
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
    ) -> None:
        super().__init__()
        sizes = {"in_channels": in_channels, "hidden_channels": hidden_channels, "out_channels": out_channels}
        for name, size in {**sizes, "num_layers": num_layers}.items():
            require_whole(name, size, 1)
        require(is_number(dropout) and 0 <= dropout < 1, "dropout", "lie in [0, 1)", dropout)
        self.weight = nn.Parameter(torch.empty(in_channels, hidden_channels))
        self.bias = nn.Parameter(torch.empty(hidden_channels))
        self.layers = nn.ModuleList(GPSLayer(hidden_channels, dropout) for _ in range(num_layers))
        self.penultimate = Penultimate()
        self.head = nn.Linear(hidden_channels, out_channels)
        self.in_channels = in_channels
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the weights."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]
        self.head.reset_parameters()

    def forward(self, x: Tensor | PreparedGraph, edge_index: Tensor | None = None) -> Tensor:
        """Logits, [nodes, classes], of features and edges or of a prepared graph."""
        inputs = self.prepare(known_graph(x, edge_index))
        return self.tail(self.stem(inputs), inputs)

    def prepare(self, graph: PreparedGraph) -> tuple[Features, Matrix]:
        """X and Â: what depends on the graph alone."""
        check_fits(graph, self.in_channels, self.weight)
        return graph.features, graph.edges.convolution(graph.x.dtype)

    def stem(self, inputs: tuple[Features, Matrix]) -> Tensor:
        """X W."""
        return product(inputs[0], self.weight)

    def tail(self, hidden: Tensor, inputs: tuple[Features, Matrix]) -> Tensor:
        """From the first product to the logits."""
        hidden = hidden + self.bias
        for layer in self.layers:
            hidden = layer(hidden, inputs[1])
        logits: Tensor = self.head(self.penultimate(hidden))
        return logits


def performed_attention(queries: Tensor, keys: Tensor, values: Tensor, projection: Tensor) -> Tensor:
    """q'_i Σ_j k'_jᵀ v_j / q'_i Σ_j k'_j with q' = relu(q Pᵀ) + ε  (Choromanski et al., 2021); linear in nodes.

    >>> one = torch.ones(2, 1)
    >>> performed_attention(one, one, torch.tensor([[0.0], [3.0]]), torch.ones(1, 1)).squeeze()  # all alike: the mean
    tensor([1.5000, 1.5000])
    """
    q, k = (F.relu(rows @ projection.T) + EPSILON for rows in (queries, keys))
    return q @ (k.T @ values) / (q @ k.sum(dim=0, keepdim=True).T)
