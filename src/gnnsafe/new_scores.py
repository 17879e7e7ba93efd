"""Scores of those whom new nodes and edges touch, from the part of the graph that decides about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gnnsafe.errors import InputError
from gnnsafe.graph import Data, changed
from gnnsafe.methods import Method
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph, admitted
from gnnsafe.probing import gap
from gnnsafe.regions import Read, reached, region, rows
from gnnsafe.sparse import csr_tensor

__all__ = ["NewDecisions", "NewScores", "Reach", "new_scores"]

PROBED = 3  # nodes that are scored on another part of the graph too
LARGER = 10  # times: features of those whom nobody may hear

Ask = Callable[[PreparedGraph], Outputs]


class NewScores(NamedTuple):
    """The nodes whose scores may have changed, and their scores."""

    nodes: Tensor
    scores: Tensor


class NewDecisions(NamedTuple):
    """The nodes whose scores may have changed, their scores, p-values and flags (True = OOD)."""

    nodes: Tensor
    scores: Tensor
    p_values: Tensor
    flags: Tensor


class Reach(NamedTuple):
    """Receptive fields in hops: of a score in logits, and of logits in the graph."""

    method: int
    model: int


def new_scores(
    method: Method,
    ask: Ask,
    prepared: PreparedGraph,
    nodes: Tensor,
    reach: Reach,
    *,
    touched: bool,
    read: Read,
    trusted: bool,
) -> tuple[NewScores, Tensor]:
    """The scores of those whom the nodes in a mask touch, or only theirs, and their logits.

    Whether the receptive field is no larger than `reach` is checked on a few of them, unless the model is `trusted` and
    the method is one of ours.
    """
    graph = prepared.data
    found = region(graph, nodes, sum(reach), touched=touched, read=read)
    outputs = ask(admitted(found.part))
    scores = method.score(outputs)
    whole = found.kept.all() and found.part.edge_index.shape == graph.edge_index.shape
    sure = whole and (found.asked.all() or not touched)  # all was read, and nobody else may have changed
    if not sure and not (trusted and _ours(method)):
        picked = _spread(found.asked, 1 if whole else PROBED)  # several might have all of a small graph in sight
        other, kept = _otherwise(graph, picked, _spread(~found.kept, PROBED), reach, read)
        again, near = ask(admitted(other)), reached(graph.edge_index.flip(0), picked, reach.method)
        _check_logits(outputs.logits[near[found.kept]], again.logits[near[kept]], reach)
        if not _ours(method):
            _check_scores(scores[picked[found.kept]], method.score(again)[picked[kept]], method)
    return NewScores(found.asked.nonzero().flatten(), scores[found.where]), outputs.logits[found.where]


def _otherwise(graph: Data, picked: Tensor, beside: Tensor, reach: Reach, read: Read) -> tuple[Data, Tensor]:
    """Another part of the graph, in which the picked nodes must score alike, and a mask of its nodes.

    It is wider by a hop, there are others beside it, and whoever is too far to be heard has somebody else's features,
    and larger ones, so that whatever is taken over all nodes is another: a sum, a count, a largest norm.
    """
    found = region(graph, picked | beside, sum(reach) + 1, touched=False, read=read)
    heard = reached(graph.edge_index.flip(0), picked, sum(reach))
    places, count = found.kept.nonzero().flatten(), len(picked)
    others = torch.where(heard[places], places, (places + count // 2) % count)
    return changed(found.part, x=_enlarged(rows(graph.x, others), ~heard[places])), found.kept


def _enlarged(x: Tensor, nodes: Tensor) -> Tensor:
    """The features, those of the nodes in the mask ten times as large where they are no whole numbers, such as ids."""
    if not x.is_floating_point():
        return x
    factors = torch.where(nodes, LARGER, 1).to(x.dtype)
    if x.layout == torch.strided:
        return x * factors[:, None]
    starts, columns, entries = x.crow_indices(), x.col_indices(), x.values()
    return csr_tensor(starts, columns, entries * factors.repeat_interleave(starts.diff()), tuple(x.shape))


def _check_scores(scores: Tensor, others: Tensor, method: Method) -> None:
    difference = gap(scores, others)
    if difference > 0:
        raise InputError(
            f"'base_reach' must be the method's receptive field in hops (got {method.base_reach} for {method!r}; on "
            f"another part of the graph scores differ by {difference:.2g}): more hops are needed, or the whole graph "
            "is (base_reach = None); use score(data)"
        )


def _check_logits(logits: Tensor, others: Tensor, reach: Reach) -> None:
    difference = gap(logits, others)
    if difference > 0:
        raise InputError(
            f"'hops' must be as far as the model's receptive field (got {reach.model}, the method adds {reach.method}; "
            f"on another part of the graph logits differ by {difference:.2g}): more hops are needed, or the "
            "whole graph is, as for norms over all nodes (GraphNorm, PairNorm, LayerNorm by graph), virtual nodes or "
            "random draws; use score(data)"
        )


def _spread(mask: Tensor, count: int) -> Tensor:
    """So many of the nodes in a mask, far from each other in their order."""
    nodes, chosen = mask.nonzero().flatten(), torch.zeros_like(mask)
    if len(nodes):
        chosen[nodes[torch.linspace(0, len(nodes) - 1, count).long()]] = True
    return chosen


def _ours(method: Method) -> bool:
    """Whether the tests have seen that the receptive fields of the method, and of those within, are no larger."""
    return type(method).__module__.startswith("gnnsafe.methods.") and all(map(_ours, method.parts()))
