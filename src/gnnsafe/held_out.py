"""Which nodes of which graph a detector was trained or calibrated on: these are no longer held out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.graph import Graph
from gnnsafe.hashing import edges_digest, row_digests
from gnnsafe.prepared import PreparedGraph, admit

__all__ = ["MASKS", "KnownNodes", "UsedNodes"]

MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True, eq=False)
class KnownNodes:
    """Some nodes of a graph, which is known again by its nodes' features, in any order of nodes and edges.

    Nodes and edges may come and go, and some nodes' features change. Where most nodes share their features with
    another, as where all have the same, no node may, and the edges must be the same too. All of it is kept on the CPU.
    """

    nodes: Tensor
    """A hash of each node's features."""
    edges: str
    mask: Tensor

    def __post_init__(self) -> None:
        right = self.mask.dtype == torch.bool and self.mask.dim() == 1 and self.nodes.shape == self.mask.shape
        require(right, "mask", "be a boolean tensor of shape [nodes]", f"{self.mask.dtype} {list(self.mask.shape)}")

    @classmethod
    def of(cls, graph: Graph, mask: Tensor) -> KnownNodes:
        """The nodes in the mask."""
        graph = admit(graph)
        nodes = graph.cached("row digests", lambda: row_digests(graph.x))
        return cls(nodes, graph.edges.cached("digest", lambda: edges_digest(graph.edge_index)), mask.cpu().clone())

    @staticmethod
    def unchanged(graph: PreparedGraph) -> bool:
        """Whether a graph still holds what it held when its nodes were hashed, however it may have been written to."""
        if not graph.unwritten:
            return False
        known = KnownNodes.of(graph, torch.empty(graph.num_nodes, dtype=torch.bool, device="cpu"))
        return torch.equal(row_digests(graph.x), known.nodes) and edges_digest(graph.edge_index) == known.edges

    def same_graph(self, other: KnownNodes) -> bool:
        """Whether both are of one graph."""
        mine, its = self.nodes.sort().values, other.nodes.sort().values
        distinct = 1 + int((mine[1:] != mine[:-1]).sum())
        return torch.equal(mine, its) and (self.edges == other.edges or 2 * distinct > len(mine))

    def within(self, other: KnownNodes) -> Tensor:
        """These nodes as a mask of the other's graph: none where that is another graph.

        In another order, or where some came, went or changed, nodes are known by their features: each that is like one
        of these counts as one of them, but for a node in its old place that is like none which moved, came or went.
        """
        if not (self.same_graph(other) or self._overlaps(other)):
            return torch.zeros_like(other.mask)
        found, size = torch.isin(other.nodes, self.nodes[self.mask]), min(len(self.nodes), len(other.nodes))
        ours, its = self.nodes[:size], other.nodes[:size]
        moved = torch.cat([ours[ours != its], its[ours != its], self.nodes[size:], other.nodes[size:]])
        stayed = ~torch.isin(its, moved)
        found[:size] = torch.where(stayed, self.mask[:size], found[:size])
        return found

    def _overlaps(self, other: KnownNodes) -> bool:
        """Whether one has most nodes of the other, which are told from each other by their features."""
        more, fewer = sorted((self.nodes, other.nodes), key=len, reverse=True)
        distinct = torch.unique(fewer)
        return len(fewer) < 2 * len(distinct) < 4 * int(torch.isin(distinct, more).sum())

    def same_nodes(self, others: KnownNodes | None) -> bool:
        """Whether the others are these nodes of the same graph, in the same order."""
        if others is None or self.edges != others.edges:
            return False
        return torch.equal(self.nodes, others.nodes) and torch.equal(self.mask, others.mask)

    def among(self, others: KnownNodes | None) -> int:
        """How many of these nodes are among the others; none where those are of another graph."""
        return 0 if others is None else int((others.within(self) & self.mask).sum())


@dataclass(frozen=True, eq=False)
class UsedNodes:
    """The nodes that a detector was fitted and calibrated with."""

    taught: KnownNodes
    validated: KnownNodes | None = None
    """Those that the method learnt from beside the training nodes."""
    calibrated: KnownNodes | None = None
    masks: dict[str, Tensor] = field(default_factory=dict)
    """The split of the graph that it was fitted on, by the names of its masks."""

    def __post_init__(self) -> None:
        for name, mask in self.masks.items():
            fits = name in MASKS and mask.dtype == torch.bool and mask.shape == self.taught.mask.shape
            require(fits, "masks", f"be masks of the {len(self.taught.mask)} nodes of the training graph", name)

    @classmethod
    def of(cls, graph: Graph, training: Tensor, validation: Tensor | None) -> UsedNodes:
        """The training nodes and, where the method learns from them, the validation nodes: none may be both."""
        used = cls(KnownNodes.of(graph, training), masks=_masks(graph))
        if validation is None:
            return used
        return replace(used, validated=used.not_trained_on("val_mask", graph, validation))

    def split(self, graph: Graph) -> dict[str, Tensor]:
        """The masks that were kept where this is the graph that it was fitted on, else those that the graph has."""
        here = KnownNodes.of(graph, torch.ones(graph.x.shape[0], dtype=torch.bool, device="cpu"))
        same = torch.equal(here.nodes, self.taught.nodes) and here.same_graph(self.taught)
        return self.masks if same else _masks(graph)

    def not_trained_on(self, name: str, graph: Graph, mask: Tensor) -> KnownNodes:
        """The nodes in the mask, once none is known to be a training node, nor in the graph's own `train_mask`."""
        nodes, own = KnownNodes.of(graph, mask), getattr(graph, "train_mask", None)
        count = nodes.among(self.taught)
        if isinstance(own, Tensor) and own.dtype == torch.bool and own.shape == mask.shape:
            count = max(count, int((own.cpu() & nodes.mask).sum()))
        _require_held_out(name, count, "training", mask)
        return nodes

    def unseen(self, name: str, graph: Graph, mask: Tensor) -> None:
        """None of the nodes in the mask was used for training or calibration, nor did the method learn from it."""
        nodes = self.not_trained_on(name, graph, mask)
        _require_held_out(name, nodes.among(self.calibrated), "calibration", mask)
        _require_held_out(name, nodes.among(self.validated), "validation", mask)


def _masks(graph: Graph) -> dict[str, Tensor]:
    own = {name: getattr(graph, name, None) for name in MASKS}
    shape = (graph.x.shape[0],)
    return {
        name: mask.cpu().clone()
        for name, mask in own.items()
        if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == shape and bool(mask.any())
    }


def _require_held_out(name: str, count: int, kind: str, mask: Tensor) -> None:
    got = f"{count} {kind} nodes among {int(mask.sum())}"
    require(count == 0, name, "hold held-out nodes alone", got, "give a mask of other ID nodes")
