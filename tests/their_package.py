"""What somebody else may write: a method, a model and an objective, which tests register or install."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.methods import Method
from gnnsafe.methods.base import fitted
from gnnsafe.models import Model
from gnnsafe.training import Objective


@dataclass
class Distance(Method):
    """Distance from the training nodes' mean features, factor · ‖x − x̄‖."""

    factor: float = 2.0
    mean_: Tensor = fitted()

    base_reach = 0
    objective = "smoothed"

    def fit(self, outputs, y, mask):
        super().fit(outputs, y, mask)
        self.mean_ = outputs.graph.x[mask].mean(dim=0)
        return self

    def base_scores(self, outputs):
        return self.factor * (outputs.graph.x - self.mean_).norm(dim=1)


class OneHop(Model):
    """A linear layer of each node's features and the sum of its in-neighbours', scaled."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, scale: float = 0.5) -> None:
        super().__init__()
        self.first, self.last = Linear(in_channels, hidden_channels), Linear(hidden_channels, out_channels)
        self.register_buffer("scale", torch.full((in_channels,), scale), persistent=False)

    @property
    def reach(self) -> int:
        return 1

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        heard = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        return self.last(F.relu(self.first(self.scale * (x + heard))))


@dataclass(frozen=True)
class Smoothed(Objective):
    """Cross-entropy with smoothed labels."""

    smoothing: float = 0.1

    def loss(self, outputs, exposure=None, *, epoch=0):
        mask = outputs.graph.train_mask
        return F.cross_entropy(outputs.logits[mask], outputs.graph.y[mask], label_smoothing=self.smoothing)
