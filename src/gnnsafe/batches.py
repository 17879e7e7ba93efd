"""Scores of a whole graph a batch of nodes at a time, each batch from its receptive field: memory grows with that."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gnnsafe.new_scores import Parts
from gnnsafe.outputs import Outputs
from gnnsafe.progress import progress
from gnnsafe.scores import max_softmax

__all__ = ["Answers", "in_batches"]


class Answers(NamedTuple):
    """One entry per node: its score, and where the model is a multiclass one, the class that it predicts."""

    scores: Tensor
    compared: Tensor
    """What p-values compare: see `gnnsafe.methods.base.Scored`."""
    predicted: Tensor | None
    probabilities: Tensor | None
    """Of the predicted class."""
    watched: Tensor | None = None
    """What is watched over many graphs: see `gnnsafe.methods.base.Scored`."""
    logits: Tensor | None = None
    """Only where they are wanted: they are as many numbers as there are nodes and classes."""

    @classmethod
    def of(
        cls, scores: Tensor, compared: Tensor, outputs: Outputs, *, watched: Tensor | None = None, logits: bool = False
    ) -> Answers:
        """The scores, and what the logits say."""
        if outputs.classifier is None or outputs.task != "multiclass":
            return cls(scores, compared, None, None, watched)
        kept = outputs.logits if logits else None
        return cls(scores, compared, outputs.logits.argmax(dim=1), -max_softmax(outputs.logits), watched, kept)

    def at(self, mask: Tensor) -> Answers:
        """Those about the nodes in a mask."""
        return Answers(*(None if values is None else values[mask] for values in self))  # type: ignore[arg-type]

    def room(self, nodes: int) -> Answers:
        """Empty tensors like these for so many nodes."""
        return Answers(*(None if one is None else one.new_empty(nodes, *one.shape[1:]) for one in self))  # type: ignore[arg-type]

    def put(self, start: int, others: Answers) -> None:
        """The others become those from `start` on."""
        for values, new in zip(self, others, strict=True):
            if values is not None and new is not None:
                values[start : start + len(new)] = new


def in_batches(parts: Parts, batch_size: int, *, logits: bool = False) -> Answers:
    """Scores, classes and probabilities of all nodes of the graph, with its `logits` where they are wanted.

    Batches are consecutive nodes: where neighbours have numbers that are near each other, receptive fields overlap and
    are small. The receptive field's size is checked on the first batch that tells, whose part is not the whole graph,
    and on those of much smaller parts: one that is nearly the whole graph says little of these.
    """
    graph = parts.graph
    graph.edges.incoming  # noqa: B018 - once, so that each batch finds its edges without reading all
    starts, found, least = range(0, graph.num_nodes, batch_size), None, math.inf
    with progress("Scoring", len(starts)) as advance:
        for start in starts:
            nodes = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
            nodes[start : start + batch_size] = True
            answers, least = _answers(parts, nodes, least, logits=logits)
            found = found or answers.room(graph.num_nodes)  # once: small tensors of each batch would fragment memory
            found.put(start, answers)
            advance()
    assert found is not None  # as a graph has nodes
    return found


def _answers(parts: Parts, nodes: Tensor, least: float, *, logits: bool) -> tuple[Answers, float]:
    """Those about the nodes in a mask, and how many nodes the smallest part has on which the field was checked."""
    part = parts.scored(nodes, touched=False)
    size = int(part.region.kept.sum())
    if 2 * size < least and not parts.whole(part) and (parts.check(part) or least < math.inf):
        least = size
    rows = part.scores  # of which scores are made once all are known
    return Answers.of(rows, rows, part.outputs, logits=logits).at(part.region.where), least
