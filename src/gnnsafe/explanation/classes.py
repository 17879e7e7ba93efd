"""Where training classes lie, and how far a node is from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gnnsafe.outputs import Outputs

__all__ = ["NearClass", "TrainingClasses"]


class NearClass(NamedTuple):
    """A training class and how far the node lies from its mean: 1 is as far as its training nodes do."""

    label: int
    distance: float


@dataclass(frozen=True, eq=False)
class TrainingClasses:
    """Where each class's training nodes lie: the mean of their embeddings (or logits), and their distance from it.

    Kept on the CPU.
    """

    labels: Tensor
    means: Tensor
    spreads: Tensor

    @classmethod
    def of(cls, outputs: Outputs, y: Tensor, mask: Tensor) -> TrainingClasses:
        """Those of the training nodes; multilabel: for each label the nodes that have it."""
        h, y = _places(outputs)[mask].cpu().double(), y[mask].cpu()
        members = y[:, None] == torch.unique(y) if outputs.task == "multiclass" else y == 1
        labels = torch.unique(y) if outputs.task == "multiclass" else torch.arange(y.shape[1], device=y.device)
        labels, members = labels[members.any(dim=0)], members[:, members.any(dim=0)]
        groups = [h[member] for member in members.T]
        if not groups:  # no training node has a label
            return cls(labels, h[:0], h.new_empty(0))
        means = torch.stack([group.mean(dim=0) for group in groups])
        squares = [(group - mean).square().sum(dim=1) for group, mean in zip(groups, means, strict=True)]
        usual = torch.cat(squares).mean()  # for a class of one node, or of nodes that are all alike
        spreads = torch.stack([square.mean() if square.any() else usual for square in squares]).sqrt()
        return cls(labels, means, spreads)

    def nearest(self, outputs: Outputs, node: int) -> tuple[NearClass, ...]:
        """The classes, nearest first."""
        distances = (self.means - _places(outputs)[node].cpu().double()).norm(dim=1) / self.spreads.clamp(min=1e-12)
        order = distances.argsort()
        pairs = zip(self.labels[order].tolist(), distances[order].tolist(), strict=True)
        return tuple(NearClass(label, distance) for label, distance in pairs)


def _places(outputs: Outputs) -> Tensor:
    return outputs.logits if outputs.embedded is None else outputs.embedded
