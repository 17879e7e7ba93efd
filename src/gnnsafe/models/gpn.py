"""Graph posterior network: densities of each class, diffused along the edges."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.errors import is_number, require, require_whole
from gnnsafe.models.base import Model
from gnnsafe.models.inputs import check_fits
from gnnsafe.models.known import known_graph
from gnnsafe.models.radial import RadialFlows
from gnnsafe.outputs import Penultimate
from gnnsafe.prepared import Features, PreparedGraph
from gnnsafe.sparse import Matrix

__all__ = ["GPN"]

MOST_EVIDENCE = 30.0  # |log|; beyond it float32 has no room for a diffusion


class GPN(Model):
    """Graph posterior network: log α, α = 1 + PageRank(β), β_c = (4π)^{d/2} p(c) q(MLP(x) | c) (Stadler et al., 2021).

    With log α as logits, their softmax is the mean of Dir(α) and their energy −log α₀. q are radial flows on d latent
    dimensions. p(c), `class_shares`, are equal until the objective `UncertainCrossEntropy` sets them.

    Args:
        in_channels: How many features a node has.
        hidden_channels: The width of the MLP's hidden layer.
        out_channels: How many classes there are.
        dropout: The share of hidden units dropped in training, below 1.
        latent_channels: d, the dimensions in which densities are learnt.
        flow_layers: How many radial layers each class's density has.
        steps: How often evidence is propagated.
        teleport: How much of its own evidence a node keeps at each step, from 0 to 1.

    Raises:
        InputError: An argument breaks its rule.

    >>> model = GPN(3, 8, 2)
    >>> model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    class_shares: Tensor

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        dropout: float = 0.5,
        latent_channels: int = 16,
        flow_layers: int = 10,
        steps: int = 10,
        teleport: float = 0.1,
    ) -> None:
        super().__init__()
        sizes = {"in_channels": in_channels, "hidden_channels": hidden_channels, "out_channels": out_channels}
        sizes |= {"latent_channels": latent_channels, "flow_layers": flow_layers}
        for name, size in sizes.items():
            require_whole(name, size, 1)
        require_whole("steps", steps, 0)
        require(is_number(dropout) and 0 <= dropout < 1, "dropout", "lie in [0, 1)", dropout)
        require(is_number(teleport) and 0 <= teleport <= 1, "teleport", "lie in [0, 1]", teleport)
        self.weight = nn.Parameter(torch.empty(in_channels, hidden_channels))
        self.bias = nn.Parameter(torch.empty(hidden_channels))
        self.latent = nn.Linear(hidden_channels, latent_channels)
        self.penultimate = Penultimate()
        self.flows = RadialFlows(out_channels, latent_channels, flow_layers)
        self.register_buffer("class_shares", torch.empty(out_channels))
        self.in_channels, self.dropout, self.steps, self.teleport = in_channels, dropout, steps, teleport
        self.reset_parameters()

    @property
    def reach(self) -> int:
        """One edge further with each step."""
        return self.steps

    def reset_parameters(self) -> None:
        """Reset the weights; the classes' shares are equal again."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)
        self.latent.reset_parameters()
        self.flows.reset_parameters()
        self.class_shares.fill_(1 / len(self.class_shares))

    def forward(self, x: Tensor | PreparedGraph, edge_index: Tensor | None = None) -> Tensor:
        """log α, [nodes, classes], of features and edges or of a prepared graph."""
        inputs = self.prepare(known_graph(x, edge_index))
        return self.tail(self.stem(inputs), inputs)

    def prepare(self, graph: PreparedGraph) -> tuple[Features, Matrix]:
        """X and Â: what depends on the graph alone."""
        check_fits(graph, self.in_channels, self.weight)
        return graph.features, graph.edges.convolution(graph.x.dtype)

    def stem(self, inputs: tuple[Features, Matrix]) -> Tensor:
        """The first layer's X W."""
        return inputs[0] @ self.weight

    def tail(self, hidden: Tensor, inputs: tuple[Features, Matrix]) -> Tensor:
        """From the first layer's product to log α."""
        hidden = F.dropout(F.relu(hidden + self.bias), self.dropout, self.training)
        own = self._evidence(self.penultimate(self.latent(hidden)))
        evidence, adjacency = own, inputs[1]
        for _ in range(self.steps):
            evidence = torch.lerp(adjacency @ evidence, own, self.teleport)
        return torch.log1p(evidence)

    def _evidence(self, z: Tensor) -> Tensor:
        scale = 0.5 * z.shape[1] * math.log(4 * math.pi)  # keeps densities of many dimensions from vanishing
        log_evidence: Tensor = self.flows(z) + self.class_shares.log() + scale
        return log_evidence.clamp(-MOST_EVIDENCE, MOST_EVIDENCE).exp()
