"""Scores of a whole graph a batch of nodes at a time, each batch from its receptive field: memory grows with that."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnsafe.new_scores import Parts
from gnnsafe.progress import progress

__all__ = ["in_batches", "predicted"]


def in_batches(parts: Parts, batch_size: int) -> tuple[Tensor, Tensor]:
    """The scores of all nodes, and the class that is predicted for each (0 where there is no model).

    Batches are consecutive nodes: where neighbours have numbers that are near each other, receptive fields overlap and
    are small. The receptive field's size is checked on the first batch whose part is not the whole graph.
    """
    graph, checked = parts.graph, False
    graph.edges.incoming  # noqa: B018 - once, so that each batch finds its edges without reading all
    nodes = torch.arange(graph.num_nodes, device=graph.device)
    scores, classes = torch.empty(len(nodes), device=graph.device), torch.empty_like(nodes)
    starts = range(0, len(nodes), batch_size)
    with progress("Scoring", len(starts)) as advance:
        for start in starts:
            batch = slice(start, start + batch_size)
            part = parts.scored((nodes >= start) & (nodes < start + batch_size), touched=False)
            if not checked and not parts.whole(part):
                parts.check(part)
                checked = True
            scores[batch] = part.scores[part.region.where]
            classes[batch] = predicted(part.outputs.logits[part.region.where])
            advance()
    return scores, classes


def predicted(logits: Tensor) -> Tensor:
    """The class with the largest logit, int64; 0 where there is no model, and so no class."""
    return logits.argmax(dim=1) if logits.shape[1] else logits.new_zeros(len(logits), dtype=torch.int64)
