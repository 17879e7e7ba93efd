"""A graph from two tables: one row per node, one row per edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnsafe.datasets.reading import columns
from gnnsafe.datasets.reading.columns import plain, trimmed
from gnnsafe.datasets.reading.features import read_features
from gnnsafe.datasets.reading.files import column_names, find_column, read_table
from gnnsafe.datasets.reading.ids import node_ids, positions
from gnnsafe.datasets.reading.refusal import refusal, shown, warn_of_weights
from gnnsafe.datasets.reading.times import times

__all__ = ["graph_from_tables"]

ROW_NUMBERS = ("", "Unnamed: 0", "__index_level_0__")  # of pandas, without a name: as a feature they tell the order

Column = Any  # Arrow's classes, whose package ships no types


def graph_from_tables(nodes: Path, edges: Path, *, drop_unknown_edges: bool) -> dict[str, Any]:
    """The parts of the graph, as arrays, by name."""
    names = column_names(nodes)
    if numbered := [name for name in names if name.strip() in ROW_NUMBERS]:
        remedy = "write the table without them (index=False), or name the column if it is a feature"
        raise refusal(
            nodes, f"must have named columns alone (got '{numbered[0]}', as pandas calls row numbers)", remedy
        )
    id_name = str(find_column(nodes, names, "id", "node_id", required=True))
    roles = {"y": ("label", "y"), "split": ("split",), "timestamp": ("timestamp",)}
    found = {role: find_column(nodes, names, *synonyms) for role, synonyms in roles.items()}
    meant = [id_name, *(name for name in found.values() if name)]
    table = read_table(nodes, meant)
    ids = node_ids(nodes, plain(table[id_name]), id_name)
    parts: dict[str, Any] = {}
    if found["y"]:
        parts["y"], parts["class_names"] = columns.labels(nodes, trimmed(table[found["y"]]), found["y"])
    if found["split"]:
        parts |= columns.splits(nodes, trimmed(table[found["split"]]), found["split"])
        _check_training(nodes, parts, found["y"] or "label")
    if found["timestamp"]:
        parts["timestamp"] = times(nodes, trimmed(table[found["timestamp"]]), found["timestamp"])
    del table
    features = read_features(nodes, [name for name in names if name not in meant])
    parts |= {"x": features.x, "feature_names": features.names, "ignored_columns": features.ignored or None}
    parts |= _edges(edges, ids, nodes, drop_unknown_edges)
    parts["node_id"] = ids.to_pylist()
    return parts


def _check_training(file: Path, parts: dict[str, Any], name: str) -> None:
    unlabelled = parts["train_mask"] & (parts["y"] < 0 if "y" in parts else True)
    if unlabelled.any():
        raise refusal(
            file,
            "must be given for a training node (got nothing)",
            "label it, or take it out of the split 'train'",
            column=name,
            row=int(unlabelled.argmax()) + 1,
        )


def _edges(file: Path, ids: Column, nodes: Path, drop_unknown: bool) -> dict[str, Any]:
    names = column_names(file)
    ends = [str(find_column(file, names, *pair, required=True)) for pair in (("source", "src"), ("target", "dst"))]
    warn_of_weights(file, names)
    table = read_table(file, ends)
    edge_index = np.stack([positions(file, plain(table[end]), end, ids) for end in ends])
    unknown = edge_index < 0
    lost = unknown[0] | unknown[1]
    if drop_unknown and not lost.all():
        return {"edge_index": edge_index[:, ~lost], "dropped_edges": int(lost.sum())}
    if lost.any():
        place = int(lost.argmax())
        end = ends[int(unknown[:, place].argmax())]
        got = f"{shown(table[end][place].as_py())}, one of {int(lost.sum())} such edges of {len(lost)}"
        remedy = "add the node, write its id as there, or leave such edges out with drop_unknown_edges=True "
        remedy += "(--drop-unknown-edges)"
        if drop_unknown:
            remedy = "no edge would be left: check that both files write ids alike"
        problem = f"must be the id of a node in {nodes.name} (got {got})"
        raise refusal(file, problem, remedy, column=end, row=place + 1)
    return {"edge_index": edge_index}
