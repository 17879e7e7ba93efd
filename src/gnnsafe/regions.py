"""Parts of a graph: whom nodes reach, and as much of it as decides about some of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gnnsafe.errors import require
from gnnsafe.graph import Data, changed
from gnnsafe.sparse import scipy_csr, torch_csr

__all__ = ["Region", "reached", "region", "subgraph"]


class Region(NamedTuple):
    """The nodes that are asked about, and the part of the graph that decides about them."""

    asked: Tensor
    """A mask of the graph's nodes."""
    part: Data
    where: Tensor
    """A mask of the part's nodes: those that are asked about, in their order."""


def region(graph: Data, nodes: Tensor, reach: int, *, touched: bool = True) -> Region:
    """What the nodes in a mask touch (or only they), where each node hears of others from `reach` edges away.

    The part holds whoever the touched hear of, and whoever points to those: a degree counts them.
    """
    source, target = graph.edge_index
    asked = reached(graph.edge_index, nodes, reach) if touched else nodes
    heard = reached(graph.edge_index.flip(0), asked, reach)
    edges = heard[target]
    kept = heard.clone()
    kept[source[edges]] = True
    return Region(asked, subgraph(graph, kept, edges), asked[kept])


def reached(edge_index: Tensor, nodes: Tensor, hops: int) -> Tensor:
    """A mask of the nodes that those in the mask `nodes` reach in at most `hops` edges, themselves among them.

    >>> reached(torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([True, False, False, False]), 2).tolist()
    [True, True, True, False]
    """
    source, target = edge_index
    nodes = nodes.clone()
    for _ in range(hops):
        before = int(nodes.sum())
        nodes[target[nodes[source]]] = True
        if int(nodes.sum()) == before:
            break
    return nodes


def subgraph(graph: Data, nodes: Tensor, edges: Tensor) -> Data:
    """The nodes and the edges in these masks, renumbered; whatever has a row for each node or edge goes along."""
    for name in ("adj", "adj_t"):
        require(getattr(graph, name, None) is None, f"data.{name}", "be left out where a part of the graph is", "one")
    edge_index, values = graph.edge_index, {}
    for name, value in (graph.to_dict() if hasattr(graph, "to_dict") else vars(graph)).items():
        if isinstance(value, Tensor) and value.dim() > 0 and name != "edge_index":
            kept = edges if "edge" in name else nodes
            values[name] = _rows(value, kept) if len(value) == len(kept) else value
    place = torch.cumsum(nodes, dim=0) - 1
    return changed(graph, edge_index=place[edge_index[:, edges]].to(edge_index.dtype), **values)


def _rows(values: Tensor, kept: Tensor) -> Tensor:
    return values[kept] if values.layout == torch.strided else torch_csr(scipy_csr(values)[kept.numpy()])
