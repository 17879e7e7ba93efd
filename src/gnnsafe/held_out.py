"""Which nodes of which graph taught or calibrated a detector: these are no longer held out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.graph import Graph, graph_digest

__all__ = ["KnownNodes", "check_untaught"]


@dataclass(frozen=True, eq=False)
class KnownNodes:
    """Nodes of one graph, which is known again by its features and edges."""

    graph: str
    mask: Tensor

    @classmethod
    def of(cls, graph: Graph, mask: Tensor) -> KnownNodes:
        """The nodes in the mask."""
        return cls(graph_digest(graph), mask)

    def among(self, others: KnownNodes) -> int:
        """How many of these nodes are among the others; none where those are of another graph."""
        return int((self.mask & others.mask).sum()) if self.graph == others.graph else 0


def check_untaught(name: str, nodes: KnownNodes, taught: KnownNodes | None, graph: Graph) -> None:
    """None of the nodes has taught: those that the detector was fitted with, and the graph's own training nodes."""
    count = 0 if taught is None else nodes.among(taught)
    own = getattr(graph, "train_mask", None)
    if isinstance(own, Tensor) and own.dtype == torch.bool and own.shape == nodes.mask.shape:
        count = max(count, int((own & nodes.mask).sum()))
    require(
        count == 0, name, "hold held-out nodes", f"{count} training nodes among {int(nodes.mask.sum())}",
        "give mask=…, a mask of other ID nodes",
    )  # fmt: skip
