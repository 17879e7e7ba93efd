"""Scores of the nodes that new nodes and edges affect, from the part of the graph that determines their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gnnsafe.errors import InputError
from gnnsafe.graph import Data, changed
from gnnsafe.methods import Method
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph, admit
from gnnsafe.probing import gap, parts_rounding
from gnnsafe.regions import Read, Region, reached, receptive_field, region, rows
from gnnsafe.sparse import csr_tensor

__all__ = ["NewDecisions", "NewScores", "Parts", "Reach", "is_builtin", "score_nodes"]

PROBED = 3  # nodes that are scored on another part of the graph too
LARGER = 10  # times: features of nodes outside the receptive field

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


class AnsweredPart(NamedTuple):
    """A part of a graph, and what the model says about it."""

    region: Region
    outputs: Outputs


class OtherPart(NamedTuple):
    """Another part, in which some nodes must be answered alike."""

    picked: Tensor
    """A mask of the graph's nodes: those that must be."""
    kept: Tensor
    """A mask of the graph's nodes: those of this part."""
    outputs: Outputs
    telling: bool
    """Whether it says anything of `hops`: not where nobody has a node further away than that."""


class Reach(NamedTuple):
    """Receptive fields in hops: of a score in logits, and of logits in the graph."""

    method: int
    model: int


@dataclass(frozen=True, eq=False)
class Parts:
    """A graph that a model reads part by part: some nodes at a time, each from its receptive field, `reach` hops."""

    ask: Ask
    graph: PreparedGraph
    reach: Reach
    read: Read
    """What the model reads besides x and edge_index: see `regions.row_kinds`."""

    def part(self, nodes: Tensor, *, touched: bool) -> AnsweredPart:
        """The part of the graph that determines what is said of all nodes that those in a mask affect, or of these."""
        found = region(self.graph, nodes, sum(self.reach), touched=touched, read=self.read)
        return AnsweredPart(found, self._outputs(found.part, found.kept))

    def _outputs(self, part: Data, kept: Tensor) -> Outputs:
        graph = admit(part)
        graph.edges.part_of(lambda: self.graph.edges.out_degrees[kept])
        return self.ask(graph)

    def checked(self, part: AnsweredPart) -> OtherPart:
        """Another part, on which a few nodes have the same logits; else the model's receptive field is larger."""
        found, outputs = part
        further = self._hear_further(found)
        asked = further if (telling := bool(further.any())) else found.asked
        picked = _spread(asked, 1 if self.whole(part) else PROBED)  # several may see all of a small graph
        picked |= _spread(self.outwards(found), 1)
        again, kept = self._otherwise(picked, _spread(~found.kept, PROBED))
        near = receptive_field(self.graph.edges, picked, self.reach.method)
        _check_logits(outputs.logits[near[found.kept]], again.logits[near[kept]], self.reach, parts_rounding(outputs))
        return OtherPart(picked, kept, again, telling)

    def outwards(self, found: Region) -> Tensor:
        """A mask of those asked about that point to nodes outside the part: a model that reads these is misled."""
        seen = torch.bincount(found.part.edge_index[0].long(), minlength=len(found.where))[found.where]
        pointing = found.asked.clone()
        pointing[found.asked] = seen < self.graph.edges.out_degrees[found.asked]
        return pointing

    def _hear_further(self, found: Region) -> Tensor:
        """A mask of those nodes of the graph that are asked about and have a way of one hop more than `reach` to them.

        By the part alone, in which nodes at its edge lack in-neighbours that they have in the graph.
        """
        source, target = found.part.edge_index
        hears = self.graph.edges.hear_others[found.kept]
        for _ in range(sum(self.reach)):
            onwards = (source != target) & hears[source]
            hears = torch.zeros_like(hears).index_fill_(0, target[onwards].long(), value=True)
        further = found.asked.clone()
        further[found.kept.clone()] &= hears
        return further

    def whole(self, part: AnsweredPart) -> bool:
        """Whether the part is all of the graph."""
        found = part.region
        return bool(found.kept.all()) and found.part.edge_index.shape == self.graph.edge_index.shape

    def _otherwise(self, picked: Tensor, beside: Tensor) -> tuple[Outputs, Tensor]:
        """The outputs on another part, in which the picked nodes must be answered alike, and a mask of its nodes.

        It is wider by a hop, there are others beside it, some to whom its nodes point, and nodes outside the receptive
        field get another node's features, and larger ones where the model takes them, so that whatever is taken over
        all nodes is another: a sum, a count, a largest norm or degree.
        """
        edges, inside = self.graph.edges, receptive_field(self.graph.edges, picked, sum(self.reach))
        wider = receptive_field(edges, picked | beside, sum(self.reach) + 1)
        after = [_spread(reached(edges.index, nodes, 1) & ~wider, PROBED) for nodes in (picked, inside)]
        heard = wider | after[0] | after[1]
        outside = edges.into(heard & ~inside)[:1]  # one edge, as often as any node has edges: some pad to the most
        crowd = outside.repeat(int(edges.in_degrees.max()))
        found = region(self.graph, heard, 0, touched=False, read=self.read, again=crowd)
        places, count = found.kept.nonzero().flatten(), len(picked)
        others = torch.where(inside[places], places, (places + count // 2) % count)
        x = rows(self.graph.x, others)
        try:
            return self._outputs(changed(found.part, x=_enlarged(x, ~inside[places])), found.kept), found.kept
        except Exception:  # they are numbers of something, or beyond what half precision has
            return self._outputs(changed(found.part, x=x), found.kept), found.kept


def score_nodes(
    parts: Parts, nodes: Tensor, method: Method, score: Callable[[Outputs], Tensor], *, touched: bool, trusted: bool
) -> tuple[NewScores, Tensor]:
    """The scores of the nodes that those in a mask affect, or only theirs, and their logits.

    `trusted` says whether the receptive field of the model is known to be no larger; that of one of our methods is.
    """
    part, ours = parts.part(nodes, touched=touched), is_builtin(method)
    (asked, _, where, kept), outputs = part
    scores = score(outputs)
    complete = parts.whole(part) and (bool(asked.all()) or not touched)  # all was read, and no other may have changed
    if not complete and not (trusted and ours):
        other = parts.checked(part)
        if not ours:
            again = score(other.outputs)[other.picked[other.kept]]
            _check_scores(scores[other.picked[kept]], again, method, parts_rounding(outputs))
    return NewScores(asked.nonzero().flatten(), scores[where]), outputs.logits[where]


def _enlarged(x: Tensor, nodes: Tensor) -> Tensor:
    """The features, those of the nodes in the mask ten times as large where they are no whole numbers, such as ids."""
    if not x.is_floating_point():
        return x
    factors = torch.where(nodes, LARGER, 1).to(x.dtype)
    if x.layout == torch.strided:
        return x * factors[:, None]
    starts, columns, entries = x.crow_indices(), x.col_indices(), x.values()
    return csr_tensor(starts, columns, entries * factors.repeat_interleave(starts.diff()), tuple(x.shape))


def _check_scores(scores: Tensor, others: Tensor, method: Method, rounding: float) -> None:
    difference = gap(scores, others, rounding)
    if difference > 0:
        raise InputError(
            f"'base_reach' must be the method's receptive field in hops (got {method.base_reach} for {method!r}; on "
            f"another part of the graph scores differ by {difference:.2g}): more hops are needed, or the whole graph "
            "is (base_reach = None); use score(data)"
        )


def _check_logits(logits: Tensor, others: Tensor, reach: Reach, rounding: float) -> None:
    difference = gap(logits, others, rounding)
    if difference > 0:
        raise InputError(
            f"'hops' must be as far as the model's receptive field (got {reach.model}, the method adds {reach.method}; "
            f"on another part of the graph logits differ by {difference:.2g}): more hops are needed, or the "
            "whole graph is, as for norms over all nodes (GraphNorm, PairNorm, LayerNorm by graph), virtual nodes, "
            "edges read against their direction (DirGNNConv, out-degrees) or random draws; use score(data)"
        )


def _spread(mask: Tensor, count: int) -> Tensor:
    """So many of the nodes in a mask, far from each other in their order."""
    nodes, chosen = mask.nonzero().flatten(), torch.zeros_like(mask)
    if len(nodes):
        chosen[nodes[torch.linspace(0, len(nodes) - 1, count, device=mask.device).long()]] = True
    return chosen


def is_builtin(method: Method) -> bool:
    """Whether the tests have seen that the receptive fields of the method, and of those within, are no larger."""
    return type(method).__module__.startswith("gnnsafe.methods.") and all(map(is_builtin, method.parts()))
