"""What one forward of a model gave on one graph: the model runs once, every method reads the same outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnsafe.checks import check_logits, check_tensor
from gnnsafe.errors import require
from gnnsafe.graph import Graph, check_graph

__all__ = ["Outputs", "evaluating"]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every submodule is back in the mode it was found in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


@dataclass(frozen=True, eq=False)
class Outputs:
    """Logits [nodes, classes] of a model, and the graph that it read."""

    logits: Tensor
    graph: Graph

    @classmethod
    def of(cls, model: nn.Module, graph: Graph, *, num_features: int | None = None) -> Outputs:
        """One forward `model(x, edge_index)` in evaluation mode, on a graph with `num_features` where that is known."""
        check_graph(graph, num_features=num_features)
        with evaluating(model):
            logits = check_tensor("model(x, edge_index)", model(graph.x, graph.edge_index))
        check_logits(logits)
        require(len(logits) == len(graph.x), "logits", f"have one row for each of {len(graph.x)} nodes", len(logits))
        return cls(logits, graph)
