"""Backbones trained with the same settings, and the one that is right on most validation nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from gnnsafe.graph import Data
from gnnsafe.metrics import accuracy
from gnnsafe.models import MODELS
from gnnsafe.outputs import Outputs
from gnnsafe.training import History, Objective, train

__all__ = ["AUTO", "HIDDEN", "Trained", "TrainingSetup", "best"]

HIDDEN = 64  # channels between layers, as in the paper's runs

AUTO = ("gcn", "graphsage", "mlp")
"""What "auto" tries: for neighbours that are alike, for such that are not (a node's own features apart), no edges."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A backbone, its model, what its training saw, and the share of validation nodes that it is right on."""

    backbone: str
    model: nn.Module
    history: History
    accuracy: float


@dataclass(frozen=True, eq=False)
class TrainingSetup:
    """What every backbone is trained by: a graph with scaled features, an objective, epochs and a seed."""

    data: Data
    exposure: Data | None
    objective: Objective
    epochs: int
    seed: int
    begin: Callable[[str], object] | None = None
    each_epoch: Callable[[History], object] | None = None

    def __call__(self, backbone: str) -> Trained:
        """That backbone, trained."""
        if self.begin is not None:
            self.begin(backbone)
        data = self.data
        model = MODELS[backbone](
            in_channels=data.x.shape[1], hidden_channels=HIDDEN, out_channels=len(data.class_names)
        ).to(data.x.device)
        history = train(
            model,
            data,
            objective=self.objective,
            exposure=self.exposure,
            epochs=self.epochs,
            seed=self.seed,
            each_epoch=self.each_epoch,
        )
        return Trained(backbone, model, history, accuracy(Outputs.of(model, data).logits, data.y, data.val_mask))


def best(tried: Sequence[Trained]) -> Trained:
    """The one that is right on most validation nodes; of several, the one with the lowest validation loss."""
    return max(tried, key=lambda one: (one.accuracy, -min(one.history.val_loss)))
