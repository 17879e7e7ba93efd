"""A model's passes over one graph while it trains: what the loss reads, and what validation reads."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from gnnsafe.models.base import Backbone
from gnnsafe.models.gpn import GPN
from gnnsafe.models.two_layers import TwoLayers, suits
from gnnsafe.prepared import PreparedGraph, prepare
from gnnsafe.regions import region
from gnnsafe.staged import staged

__all__ = ["Passes", "StagedPasses", "choose_passes"]


class Passes(Protocol):
    """Two passes that take turns; `validation` leaves for the next `training`, of the same weights, what they share.

    The backward pass of `training` comes before the next pass. After `validation` the model is in evaluation mode.
    """

    def training(self) -> Tensor:
        """Logits of the rows that the loss reads, as in training mode, with gradients."""
        ...

    def validation(self) -> Tensor:
        """Logits of the validation rows, as in evaluation mode, without gradients."""
        ...


class StagedPasses:
    """The passes of any model: all rows, of which those that are read are handed over. No `rows` are all."""

    def __init__(self, model: nn.Module, graph: PreparedGraph, training: Tensor | None, validation: Tensor) -> None:
        self.model, self.stages, self.rows, self.validation_rows = model, staged(model), training, validation
        self.inputs = self.stages.prepare(graph)
        self.hidden: Tensor | None = None

    def training(self) -> Tensor:
        """The stem, unless it is known, and the tail."""
        self.model.train()
        hidden, self.hidden = self.stages.stem(self.inputs) if self.hidden is None else self.hidden, None
        logits = self.stages.tail(hidden, self.inputs)
        return logits if self.rows is None else logits.index_select(0, self.rows)

    def validation(self) -> Tensor:
        """The stem, which is kept, and the tail."""
        self.model.eval()
        self.hidden = self.stages.stem(self.inputs)
        hidden = self.hidden.detach()
        with torch.no_grad():
            hidden = hidden.clone() if isinstance(self.stages, Backbone) else hidden  # whose tail works in place
            return self.stages.tail(hidden, self.inputs)[self.validation_rows]


def choose_passes(
    model: nn.Module, graph: PreparedGraph, training: Tensor | None, validation: Tensor, *, beside: Passes | None = None
) -> Passes:
    """The fastest passes over a graph of which the `training` rows (None: all) and the `validation` rows are read.

    Its training pass may take over what that of passes `beside` it has just made with the same weights.
    """
    if training is not None and suits(model, graph):
        lender = beside if isinstance(beside, TwoLayers) else None
        return TwoLayers(model, graph, training, validation, lender)  # type: ignore[arg-type]
    if training is not None and isinstance(model, GPN):  # whose densities cost much at every node
        read = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
        read[training] = read[validation] = True
        part = region(graph, read, model.reach, touched=False)
        place = torch.cumsum(part.kept, dim=0) - 1
        return StagedPasses(model, prepare(part.part), place[training], place[validation])
    return StagedPasses(model, graph, training, validation)
