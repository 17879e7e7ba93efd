"""Data sets for the terminal: the list of those we know, and what is in a graph of the user's own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from rich.table import Table
from torch import Tensor

from gnnsafe.datasets.catalogue import SINGLE_GRAPH, Dataset
from gnnsafe.graph import Data

__all__ = ["catalogue_table", "edge_counts", "graph_lines"]


def catalogue_table(datasets: Mapping[str, Dataset], at_hand: Mapping[str, bool]) -> Table:
    """A row per data set: published counts, shifts, and whether it is at hand."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("data set", "nodes", "edges", "features", "classes"):
        table.add_column(column, justify="left" if column == "data set" else "right", no_wrap=True)
    table.add_column("at hand", no_wrap=True)
    table.add_column("shifts")
    for name, dataset in datasets.items():
        counts = (f"{dataset.nodes:,}", f"{dataset.edges:,}", dataset.features, str(dataset.classes))
        single = ["single-graph*"] if dataset.graph is not None else []
        table.add_row(name, *counts, "yes" if at_hand[name] else "no", ", ".join([*single, *dataset.own]))
    table.caption = f"* {', '.join(SINGLE_GRAPH)}\nedges: as published, an undirected one in both directions"
    table.caption_justify = "left"
    return table


def graph_lines(data: Data) -> list[str]:
    """What is in a graph of the user's own, a line per thing."""
    heard = torch.bincount(data.edge_index[1], minlength=data.num_nodes) > 0
    lines = [
        f"{data.num_nodes:,} nodes, {int((~heard).sum()):,} without incoming edges",
        edge_counts(data.edge_index, data.num_nodes)
        + (f", {data.dropped_edges:,} left out for want of a node" if "dropped_edges" in data else ""),
        f"{data.num_features:,} features",
    ]
    if "y" in data:
        lines.append(f"{int(data.y.max()) + 1} classes, {int((data.y < 0).sum()):,} nodes without a label")
    if "train_mask" in data:
        masks = {split: f"{split}_mask" for split in ("train", "val", "test") if f"{split}_mask" in data}
        sizes = [f"{int(data[mask].sum()):,} {split}" for split, mask in masks.items()]
        lines.append(f"split: {', '.join(sizes)}")
    if "ignored_columns" in data:
        lines.append(f"columns not read: {', '.join(data.ignored_columns)}")
    return lines


def edge_counts(edge_index: Tensor, num_nodes: int) -> str:
    """How many edges there are, of which kind, and how many of them are self-loops or repeat another.

    A graph is undirected where every edge stands as often in one direction as in the other; its edges then count once,
    though `edge_index` has an entry for each direction (one for a self-loop).

    >>> edge_counts(torch.tensor([[0, 1, 0, 1, 1, 2, 2], [1, 0, 1, 0, 2, 1, 2]]), 3)
    '4 undirected edges (7 entries of edge_index), 1 a self-loop, 1 repeated'
    >>> edge_counts(torch.tensor([[0, 0, 1], [1, 1, 2]]), 3)
    '3 directed edges, 1 repeated'
    """
    source, target = edge_index.long()
    there, back = source * num_nodes + target, target * num_nodes + source
    loops, entries = int((source == target).sum()), len(source)
    undirected = bool(entries) and torch.equal(there.sort().values, back.sort().values)
    edges = there[source <= target] if undirected else there
    line = f"{len(edges):,} undirected edges ({entries:,} entries of edge_index)" if undirected else ""
    line = line or f"{entries:,} directed edges"
    repeated = len(edges) - len(edges.unique())
    line += f", {loops:,} {'a self-loop' if loops == 1 else 'self-loops'}" if loops else ""
    return line + (f", {repeated:,} repeated" if repeated else "")
