"""A model that is run on a batch of nodes at a time, each from its receptive field: its memory grows with that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gnnsafe.checks import check_no_probabilities
from gnnsafe.errors import require
from gnnsafe.new_scores import AnsweredPart, Parts, Reach
from gnnsafe.outputs import Classifier, Edit, Outputs
from gnnsafe.prepared import PreparedGraph, admit
from gnnsafe.progress import progress
from gnnsafe.regions import region

__all__ = ["InBatches"]


@dataclass(frozen=True, eq=False)
class InBatches(Classifier):
    """The same model, run on the receptive field, `hops`, of `batch_size` nodes at a time: with the same outputs.

    Batches are consecutive nodes: where neighbours have numbers that are near each other, receptive fields overlap and
    are small. Unless the receptive field is `trusted`, it is checked on the first batch that tells, whose part is not
    the whole graph, on those of much smaller parts, as one that is nearly the whole graph says little of these, and on
    the first of nodes that point outside their part.
    """

    batch_size: int = 1
    hops: int = 0
    trusted: bool = False

    @classmethod
    def of(cls, classifier: Classifier, batch_size: int, hops: int, *, trusted: bool) -> InBatches:
        """Run in batches what otherwise runs on the whole graph."""
        asked = classifier.model, classifier.forward, classifier.embedding, classifier.task
        return cls(*asked, batch_size, hops, trusted)

    def first(self, graph: PreparedGraph) -> PreparedGraph:
        """The part of the graph that the model reads for the first batch."""
        nodes = _mask(graph, slice(self.batch_size))
        return admit(region(graph, nodes, self.hops, touched=False, read=self.read(graph)).part)

    def __call__(self, graph: PreparedGraph, *, gradients: bool = False, edit: Edit | None = None) -> Outputs:
        """The outputs on the whole graph, put together."""
        remedy = "leave it out, or use a method without gradients"
        require(
            not gradients, "batch_size", "be left out for a method that asks for gradients", self.batch_size, remedy
        )
        ask = partial(super().__call__, edit=edit)
        parts = Parts(ask, graph, Reach(0, self.hops), self.read(graph))
        graph.edges.incoming  # noqa: B018 - once, so that each batch finds its edges without reading all
        logits = embedded = None
        starts = range(0, graph.num_nodes, self.batch_size)
        least, outwards = (0.0, True) if self.trusted else (math.inf, False)  # what was checked so far
        with progress("Running the model", len(starts)) as advance:
            for start in starts:
                here = slice(start, start + self.batch_size)
                part = parts.part(_mask(graph, here), touched=False)
                size, new = int(part.region.kept.sum()), not outwards and bool(parts.outwards(part.region).any())
                if (2 * size < least or new) and not parts.whole(part):
                    telling, outwards = parts.checked(part).telling, outwards or new
                    least = min(size, least) if telling or least < math.inf else least
                logits = _put(part.outputs.logits, part, logits, here)
                embedded = _put(part.outputs.embedded, part, embedded, here)
                advance()
        assert logits is not None  # as a graph has nodes
        if self.task == "multiclass":
            check_no_probabilities(logits)  # parts of one node may sum to 1 by chance
        return Outputs(logits, graph, self.task, self, embedded)


def _mask(graph: PreparedGraph, here: slice) -> Tensor:
    nodes = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    nodes[here] = True
    return nodes


def _put(rows: Tensor | None, part: AnsweredPart, found: Tensor | None, here: slice) -> Tensor | None:
    """What was found so far, with a part's rows; room for all of it is made once, as small tensors fragment memory."""
    if rows is None:
        return None
    if found is None:
        found = rows.new_empty(len(part.region.kept), rows.shape[1])
    found[here] = rows[part.region.where]
    return found
