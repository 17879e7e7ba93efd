"""Jumping knowledge network: a node is read at the depth that suits it."""

from __future__ import annotations

from functools import reduce
from typing import ClassVar

import torch
from torch import Tensor

from gnnsafe.models.gcn import GCN
from gnnsafe.models.inputs import ConvolutionInputs, product

__all__ = ["JKNet"]


class JKNet(GCN):
    """Jumping knowledge network: GCN's H₁, …, H_L and their maximum, logits max_l H_l W + b (Xu et al., 2018).

    `num_layers` convolutions, each but the last with its BatchNorm and ReLU as in the paper's published runs, and a
    linear layer on their entrywise maximum, which is the penultimate embedding.

    >>> model = JKNet(3, 8, 2)
    >>> model(torch.eye(3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 2])
    """

    bare: ClassVar[int] = 2

    @staticmethod
    def widths(in_channels: int, hidden_channels: int, out_channels: int, num_layers: int) -> list[int]:
        """Every convolution gives hidden channels; the linear layer comes after them."""
        return [in_channels] + [hidden_channels] * num_layers + [out_channels]

    def tail(self, hidden: Tensor, inputs: ConvolutionInputs) -> Tensor:
        """From the first layer to the logits."""
        depths: list[Tensor] = []
        for index in range(1, self.num_layers):
            depths.append(self.activated(hidden, index - 1))
            hidden = self.layer(self.dropped(depths[-1]), index, inputs)
        pooled = self.penultimate(reduce(torch.maximum, [*depths, hidden + self.biases[-2]]))
        logits: Tensor = product(self.dropped(pooled), self.weights[-1]) + self.biases[-1]
        return logits
