"""Which nodes of which graph taught or calibrated a detector: these are no longer held out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.graph import Graph, graph_digest

__all__ = ["MASKS", "KnownNodes", "UsedNodes"]

MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True, eq=False)
class KnownNodes:
    """Nodes of one graph, which is known again by its features and edges."""

    graph: str
    mask: Tensor

    def __post_init__(self) -> None:
        right = self.mask.dtype == torch.bool and self.mask.dim() == 1
        require(right, "mask", "be a boolean tensor of shape [nodes]", f"{self.mask.dtype} {list(self.mask.shape)}")

    @classmethod
    def of(cls, graph: Graph, mask: Tensor) -> KnownNodes:
        """The nodes in the mask."""
        return cls(graph_digest(graph), mask.clone())

    def among(self, others: KnownNodes | None) -> int:
        """How many of these nodes are among the others; none where those are of another graph."""
        return int((self.mask & others.mask).sum()) if others is not None and self.graph == others.graph else 0


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
        return replace(used, validated=used.untaught("val_mask", graph, validation))

    def split(self, graph: Graph) -> dict[str, Tensor]:
        """The masks that were kept where this is the graph that it was fitted on, else those that the graph has."""
        return self.masks if graph_digest(graph) == self.taught.graph else _masks(graph)

    def untaught(self, name: str, graph: Graph, mask: Tensor) -> KnownNodes:
        """The nodes in the mask, once none of them is known to have taught: nor by the graph's own `train_mask`."""
        nodes, own = KnownNodes.of(graph, mask), getattr(graph, "train_mask", None)
        count = nodes.among(self.taught)
        if isinstance(own, Tensor) and own.dtype == torch.bool and own.shape == mask.shape:
            count = max(count, int((own & mask).sum()))
        _require_held_out(name, count, "training", mask)
        return nodes

    def unseen(self, name: str, graph: Graph, mask: Tensor) -> None:
        """None of the nodes in the mask has taught, and none has calibrated."""
        nodes = self.untaught(name, graph, mask)
        _require_held_out(name, nodes.among(self.calibrated), "calibration", mask)


def _masks(graph: Graph) -> dict[str, Tensor]:
    own = {name: getattr(graph, name, None) for name in MASKS}
    shape = (graph.x.shape[0],)
    return {
        name: mask.clone()
        for name, mask in own.items()
        if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == shape and bool(mask.any())
    }


def _require_held_out(name: str, count: int, kind: str, mask: Tensor) -> None:
    got = f"{count} {kind} nodes among {int(mask.sum())}"
    require(count == 0, name, "hold held-out nodes alone", got, "give a mask of other ID nodes")
