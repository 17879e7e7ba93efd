"""Several networks in one, that share nothing but the graph."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gnnsafe.errors import require_whole
from gnnsafe.models.gcn import GCN
from gnnsafe.models.inputs import ConvolutionInputs

__all__ = ["Ensemble"]


class Ensemble(GCN):
    """Deep ensemble: log mean_m softmax(z_m) of `members` GCNs, each drawn by itself (Lakshminarayanan et al., 2017).

    All members in wide tensors: the first layers' matrices side by side, the others' blocks. The embedding is the
    members' logits z_m, side by side. To be trained by `MemberCrossEntropy`, by which each learns alone.

    Args:
        in_channels: How many features a node has.
        hidden_channels: The width of hidden layers, in each member.
        out_channels: How many classes there are.
        num_layers: How many message-passing layers each member has.
        dropout: The share of hidden units dropped in training, below 1.
        batch_norm: Whether BatchNorm comes after hidden layers.
        members: How many GCNs.

    Raises:
        InputError: An argument breaks its rule.

    >>> import torch
    >>> model = Ensemble(3, 8, 2, members=3)
    >>> p = model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).exp()
    >>> p.shape, torch.allclose(p.sum(dim=1), torch.ones(3))
    (torch.Size([3, 2]), True)
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
        members: int = 5,
    ) -> None:
        sizes = {"hidden_channels": hidden_channels, "out_channels": out_channels, "members": members}
        for name, size in sizes.items():
            require_whole(name, size, 1)
        self_sizes = members * hidden_channels, members * out_channels
        super().__init__(in_channels, *self_sizes, num_layers, dropout=dropout, batch_norm=batch_norm)
        self.members = members
        for index in range(1, len(self.weights)):  # a block for each member
            self.weights[index] = nn.Parameter(self.weights[index].detach()[:hidden_channels].clone())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw each member's weights as a GCN's are drawn."""
        super().reset_parameters()
        for weight in self.weights:
            for part in weight.detach().chunk(self.members, dim=1):
                nn.init.xavier_uniform_(part)

    def layer(self, hidden: Tensor, index: int, inputs: ConvolutionInputs) -> Tensor:
        """Â H_m W_m of every member m, side by side."""
        weight, nodes = self.weights[index], len(hidden)
        blocks = weight.view(len(weight), self.members, -1).transpose(0, 1)
        products = torch.bmm(hidden.view(nodes, self.members, -1).transpose(0, 1), blocks)
        return inputs.adjacency @ products.transpose(0, 1).reshape(nodes, -1)

    def tail(self, hidden: Tensor, inputs: ConvolutionInputs) -> Tensor:
        """From the first layer to the members' logits, and to the logarithm of their mean probabilities."""
        for index in range(1, len(self.weights)):
            hidden = self.layer(self.dropped(self.activated(hidden, index - 1)), index, inputs)
        answers = self.penultimate(hidden + self.biases[-1])
        log_p = answers.view(len(answers), self.members, -1).log_softmax(dim=2)
        logits: Tensor = log_p.logsumexp(dim=1) - math.log(self.members)
        return logits
