"""Parts of a graph: which nodes others reach, and the part that determines the scores of some of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnsafe.edges import Edges
from gnnsafe.errors import require
from gnnsafe.graph import WHOLE_GRAPH, Data, Kind, called, changed, stored
from gnnsafe.prepared import PreparedGraph
from gnnsafe.sparse import csr_tensor, row_entries

__all__ = ["Read", "Region", "reached", "receptive_field", "region", "renumbered", "row_kinds", "rows", "subgraph"]

Read = Collection[str] | None


class Region(NamedTuple):
    """The given nodes, and the part of the graph that determines their scores."""

    asked: Tensor
    """A mask of the graph's nodes."""
    part: Data
    where: Tensor
    """A mask of the part's nodes: the given ones, in their order."""
    kept: Tensor
    """A mask of the graph's nodes: those of the part."""


def region(
    graph: PreparedGraph,
    nodes: Tensor,
    reach: int,
    *,
    touched: bool = True,
    read: Read = (),
    again: Tensor | None = None,
) -> Region:
    """The nodes that those in a mask affect (or only these), where the receptive field is `reach` hops.

    The part holds the receptive fields of the affected nodes, and their in-neighbours, which degrees count; and the
    edges into these whose numbers are given `again`, once more each.
    """
    asked = reached(graph.edge_index, nodes, reach) if touched else nodes
    kept = receptive_field(graph.edges, asked, reach)
    edges = graph.edges.into(kept)
    kept[graph.edge_index[0][edges]] = True
    edges = edges if again is None else torch.cat([edges, again]).sort().values
    return Region(asked, subgraph(graph.data, kept, edges, read=read), asked[kept], kept)


def receptive_field(edges: Edges, nodes: Tensor, hops: int) -> Tensor:
    """A mask of the nodes from which at most `hops` edges lead to those in the mask `nodes`, these among them.

    >>> edges = Edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)
    >>> receptive_field(edges, torch.tensor([False, False, False, True]), 2).tolist()
    [False, True, True, True]
    """
    found, last = nodes.clone(), nodes
    for _ in range(hops):
        before, found = found, found.clone()
        found[edges.index[0][edges.into(last)]] = True
        last = found & ~before
        if not last.any():
            break
    return found


def excerpt(graph: PreparedGraph, mask: Tensor, hops: int) -> tuple[Tensor, Data]:
    """The nodes from which `hops` edges or fewer lead into a mask, and the subgraph of these, its features left out.

    Reading the features is an error: they are on torch's meta device, of the right shape.
    """
    kept = receptive_field(graph.edges, mask, hops)
    source, target = graph.edge_index
    bare = changed(graph.data, x=torch.empty(graph.x.shape, dtype=graph.x.dtype, device="meta"))
    return kept.nonzero().squeeze(1), subgraph(bare, kept, (kept[source] & kept[target]).nonzero().flatten())


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


def subgraph(graph: Data, nodes: Tensor, edges: Tensor, *, read: Read = ()) -> Data:
    """The nodes in a mask and the edges of these numbers, renumbered; what has a row for each of them goes along.

    `read` names what the model reads besides x and edge_index, None where that may be anything: see `row_kinds`.
    """
    kinds: dict[str, Kind] = {"x": "node", **row_kinds(graph, read, "node", "edge")}  # x may be computed, not stored
    kept = {"node": nodes.nonzero().flatten(), "edge": edges}
    values = {name: rows(getattr(graph, name), kept[kind]) for name, kind in kinds.items()}
    if "num_nodes" in stored(graph):
        values["num_nodes"] = int(nodes.sum())
    place = torch.cumsum(nodes, dim=0) - 1
    edge_index = graph.edge_index
    return changed(graph, edge_index=place[edge_index[:, edges]].to(edge_index.dtype), **values)


def renumbered(graph: Data, nodes: Tensor) -> tuple[Data, list[str]]:
    """The same graph with its nodes in this order, its edges sorted by target, and with them whatever has their rows.

    Each node's in-edges keep their order: some sum them up in turn, or take the last of two loops. What is only as long
    as there are nodes or edges is taken for their rows, and named beside the graph; an index or a matrix is left out.
    """
    edge_index = torch.argsort(nodes)[graph.edge_index.long()].to(graph.edge_index.dtype)
    order: dict[Kind, Tensor] = {"node": nodes, "edge": torch.argsort(edge_index[1], stable=True)}
    kinds, guessed = row_kinds(graph, (), *order), _guessed(graph)
    values = {name: rows(getattr(graph, name), order[kind]) for name, kind in (kinds | guessed).items()}
    left_out = dict.fromkeys(name for name, value in stored(graph).items() if _unordered(name, value, graph))
    return changed(graph, **{**values, **left_out, "edge_index": edge_index[:, order["edge"]]}), list(guessed)


def _guessed(graph: Data) -> dict[str, Kind]:
    """What may have a row for each node or edge, by its length alone."""
    kinds: dict[int | None, Kind] = {graph.edge_index.shape[1]: "edge", graph.x.shape[0]: "node"}
    unclear = {name: _length(value) for name, value in stored(graph).items() if not _unordered(name, value, graph)}
    return {
        name: kinds[size]
        for name, size in unclear.items()
        if size in kinds and called(name) is None and name not in WHOLE_GRAPH
    }


def _unordered(name: str, value: object, graph: Data) -> bool:
    """Whether it is an index of nodes or edges, or a matrix of nodes by nodes: no rows that can be put in order."""
    square = getattr(value, "shape", None) == (len(graph.x), len(graph.x)) and called(name) is None
    return square or _is_index(name)


def _is_index(name: str) -> bool:
    return name in ("adj", "adj_t") or ("index" in name and name != "edge_index")


def row_kinds(graph: Data, read: Read, *wanted: Kind) -> dict[str, Kind]:
    """Which attributes have a row for each node or for each edge: those that are called so, and are as long.

    What is only as long may be anything, such as a global vector, and what else is an index or a matrix of the graph
    cannot be cut: where the model reads it, that is said.
    """
    found: dict[str, Kind] = {}
    sizes: dict[Kind, int] = {"node": graph.x.shape[0], "edge": graph.edge_index.shape[1]}
    for name, value in stored(graph).items():
        kind, size, seen = called(name), _length(value), read is None or name in read
        if _is_index(name):
            require(not seen, f"data.{name}", "be left out where edges are, or a part of the graph is", "one")
        elif kind is not None and kind in wanted and size == sizes[kind]:
            found[name] = kind
        elif kind is None and name not in WHOLE_GRAPH and size in [sizes[kind] for kind in wanted]:
            require(
                not seen, f"data.{name}", f"be called node_{name} or edge_{name}, by what its rows belong to",
                f"{size} rows, as many as there are nodes or edges",
                "delete what the model does not read, and keep in it what belongs to neither",
            )  # fmt: skip
    return found


def _length(value: object) -> int | None:
    if isinstance(value, Tensor | np.ndarray):
        return len(value) if value.ndim else None
    return len(value) if isinstance(value, list | tuple) else None


def rows(values: Any, places: Tensor) -> Any:
    """The rows at these places, of a dense or CSR tensor, an array or a list."""
    if isinstance(values, Tensor) and values.is_meta:
        return values[: len(places)]
    if isinstance(values, Tensor):
        places = places.to(values.device)
        return values[places] if values.layout == torch.strided else _csr_rows(values, places)
    if isinstance(values, np.ndarray):
        return values[places.cpu().numpy()]
    return [values[place] for place in places.tolist()]


def _csr_rows(x: Tensor, places: Tensor) -> Tensor:
    starts, columns, entries = x.crow_indices(), x.col_indices(), x.values()
    ends = torch.cumsum(starts.diff()[places], dim=0, dtype=starts.dtype)
    chosen = row_entries(starts, places)
    return csr_tensor(torch.cat([ends.new_zeros(1), ends]), columns[chosen], entries[chosen], (len(places), x.shape[1]))
