"""Data sets: the list of those we know, and what is in a graph of the user's own; as figures, and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from gnnsafe.datasets.catalogue import CONTROLS, SINGLE_GRAPH, Dataset
from gnnsafe.graph import Data

__all__ = ["catalogue_figures", "catalogue_table", "edge_counts", "edge_figures", "graph_figures", "graph_lines"]

COUNT_COLUMNS = ("nodes", "edges", "features", "classes")


def catalogue_figures(datasets: Mapping[str, Dataset], root: str | None) -> list[dict[str, Any]]:
    """An entry per data set: published counts, whether it is available, and its shifts."""
    return [
        {
            "name": name,
            **{count: getattr(dataset, count) for count in COUNT_COLUMNS},
            "available": dataset.available(root),
            "shifts": list(dataset.shifts),
        }
        for name, dataset in datasets.items()
    ]


def catalogue_table(figures: Sequence[Mapping[str, Any]]) -> Table:
    """A row per data set."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column in ("data set", *COUNT_COLUMNS):
        table.add_column(column, justify="left" if column == "data set" else "right", no_wrap=True)
    table.add_column("available", no_wrap=True)
    table.add_column("shifts", overflow="fold")  # names are for copying: none is cut
    for one in figures:
        counts = (f"{one['nodes']:,}", f"{one['edges']:,}", str(one["features"]), str(one["classes"]))
        own = [shift for shift in one["shifts"] if shift not in (*SINGLE_GRAPH, *CONTROLS)]
        single = ["single-graph*"] if {*SINGLE_GRAPH} <= {*one["shifts"]} else []
        table.add_row(one["name"], *counts, "yes" if one["available"] else "no", ", ".join([*single, *own]))
    table.caption = f"* {', '.join(SINGLE_GRAPH)}\nedges: as published, an undirected one in both directions"
    table.caption_justify = "left"
    return table


def graph_figures(data: Data) -> dict[str, Any]:
    """What is in a graph of the user's own."""
    linked = torch.bincount(data.edge_index[1], minlength=data.num_nodes) > 0
    found = {
        "nodes": data.num_nodes,
        "without_incoming_edges": int((~linked).sum()),
        **edge_figures(data.edge_index, data.num_nodes),
        "dropped_edges": data.dropped_edges if "dropped_edges" in data else 0,
        "features": data.num_features,
    }
    if "y" in data:
        found |= {"classes": int(data.y.max()) + 1, "without_label": int((data.y < 0).sum())}
    if "train_mask" in data:
        masks = {split: f"{split}_mask" for split in ("train", "val", "test")}
        found["split"] = {split: int(data[mask].sum()) for split, mask in masks.items() if mask in data}
    if "ignored_columns" in data:
        found["ignored_columns"] = list(data.ignored_columns)
    return found


def graph_lines(figures: Mapping[str, Any]) -> list[str]:
    """The same in words, a line per thing."""
    dropped = figures["dropped_edges"]
    lines = [
        f"{figures['nodes']:,} nodes, {figures['without_incoming_edges']:,} without incoming edges",
        edge_counts(figures) + (f", {dropped:,} left out for want of a node" if dropped else ""),
        f"{figures['features']:,} features",
    ]
    if "classes" in figures:
        lines.append(f"{figures['classes']} classes, {figures['without_label']:,} nodes without a label")
    if "split" in figures:
        lines.append(f"split: {', '.join(f'{size:,} {split}' for split, size in figures['split'].items())}")
    if "ignored_columns" in figures:
        lines.append(f"columns not read: {', '.join(figures['ignored_columns'])}")
    return lines


def edge_figures(edge_index: Tensor, num_nodes: int) -> dict[str, Any]:
    """How many edges there are, of which kind, and how many of them are self-loops or repeat another.

    A graph is undirected where every edge stands as often in one direction as in the other; its edges then count once,
    though `edge_index` has an entry for each direction (one for a self-loop).

    >>> edge_figures(torch.tensor([[0, 1, 0, 1, 1, 2, 2], [1, 0, 1, 0, 2, 1, 2]]), 3)
    {'edges': 4, 'undirected': True, 'entries': 7, 'self_loops': 1, 'repeated': 1}
    """
    source, target = edge_index.long()
    there, back = source * num_nodes + target, target * num_nodes + source
    loops, entries = int((source == target).sum()), len(source)
    undirected = bool(entries) and torch.equal(there.sort().values, back.sort().values)
    edges = there[source <= target] if undirected else there
    repeated = len(edges) - len(edges.unique())
    counts = {"entries": entries, "self_loops": loops, "repeated": repeated}
    return {"edges": len(edges), "undirected": undirected, **counts}


def edge_counts(figures: Mapping[str, Any]) -> str:
    """The same in words.

    >>> edge_counts(edge_figures(torch.tensor([[0, 0, 1], [1, 1, 2]]), 3))
    '3 directed edges, 1 repeated'
    """
    edges, loops, repeated = (figures[name] for name in ("edges", "self_loops", "repeated"))
    both = f"{edges:,} undirected edges ({figures['entries']:,} entries of edge_index)"
    line = both if figures["undirected"] else f"{edges:,} directed edges"
    line += f", {loops:,} {'a self-loop' if loops == 1 else 'self-loops'}" if loops else ""
    return line + (f", {repeated:,} repeated" if repeated else "")
