"""A graph from two tables: one row per node, one row per edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gnnsafe.datasets.reading import columns
from gnnsafe.datasets.reading.columns import first_row, plain, trimmed
from gnnsafe.datasets.reading.files import column_names, find_column, is_csv, read_table
from gnnsafe.datasets.reading.refusal import refusal, shown

__all__ = ["graph_from_tables"]

Column = Any  # Arrow's classes, whose package ships no types
Table = Any

WHOLE = r"^(0|-?[1-9]\d{0,17})$"


def graph_from_tables(nodes: Path, edges: Path, *, drop_unknown_edges: bool) -> dict[str, Any]:
    """The parts of the graph, as arrays, by name."""
    names = column_names(nodes)
    id_name = find_column(nodes, names, "id", "node_id", required=True)
    roles = {"y": ("label", "y"), "split": ("split",), "timestamp": ("timestamp",)}
    found = {role: find_column(nodes, names, *synonyms) for role, synonyms in roles.items()}
    text = [name for name in (id_name, found["y"], found["split"]) if name]
    table = read_table(nodes, names, text=text)
    ids = _ids(nodes, plain(table[id_name]), str(id_name))
    rest = table.drop_columns([*text, *([found["timestamp"]] if found["timestamp"] else [])])
    parts: dict[str, Any] = {}
    parts["x"], parts["feature_names"], ignored = _features(nodes, rest)
    parts["ignored_columns"] = ignored or None
    if found["y"]:
        parts["y"], parts["class_names"] = columns.labels(nodes, trimmed(table[found["y"]]), found["y"])
    if found["split"]:
        parts |= columns.splits(nodes, trimmed(table[found["split"]]), found["split"])
        _check_training(nodes, parts, found["y"] or "label")
    if found["timestamp"]:
        parts["timestamp"] = columns.times(nodes, plain(table[found["timestamp"]]), found["timestamp"])
    del table
    parts |= _edges(edges, ids, nodes, drop_unknown_edges)
    parts["node_id"] = ids.to_pylist()
    return parts


def _ids(file: Path, column: Column, name: str) -> Column:
    """Each node's id, given and given once; those of a CSV file are whole numbers if all are, else text."""
    if not _comparable(column.type):
        raise refusal(
            file, f"must be numbers or text (got {column.type})", "use one number or text per node", column=name
        )
    if place := first_row(pc.is_null(column, nan_is_null=True)):
        raise refusal(file, "must be given (got nothing)", "give every node an id", column=name, row=place)
    if is_csv(file) and pc.all(pc.match_substring_regex(column, WHOLE)).as_py():
        column = column.cast(pa.int64())
    ids = column.combine_chunks()
    first = pc.index_in(ids, value_set=ids).to_numpy()
    repeated = first != np.arange(len(first))
    if repeated.any():
        place = int(repeated.argmax())
        raise refusal(
            file,
            f"must be unique (got {shown(ids[place].as_py())}, as in row {first[place] + 1})",
            "remove or rename one of the two",
            column=name,
            row=place + 1,
        )
    return ids


def _features(file: Path, table: Table) -> tuple[NDArray[np.float32], list[str] | None, list[str]]:
    """Features [nodes, features] from the list column or all columns of numbers, their names, and those of others."""
    for name in [name for name in table.column_names if name.strip().lower() in ("features", "x")]:
        column = plain(table[name])
        if columns.is_list(column.type) or (columns.is_text(column.type) and is_csv(file)):
            others = [other for other in table.column_names if other != name]
            return columns.list_features(file, column, name), None, others
    x = np.empty((table.num_columns, table.num_rows), dtype=np.float32)
    used: list[str] = []
    for name in table.column_names:
        values = columns.numbers(file, plain(table[name]), name)
        if values is not None:
            x[len(used)] = values
            used.append(name)
    if not used:
        raise refusal(
            file, "has no feature column", "add columns of numbers, or one column 'features' of lists of numbers"
        )
    return np.ascontiguousarray(x[: len(used)].T), used, [name for name in table.column_names if name not in used]


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
    table = read_table(file, ends, text=ends)
    edge_index = np.stack([_positions(file, plain(table[end]), end, ids) for end in ends])
    unknown = edge_index < 0
    lost = unknown[0] | unknown[1]
    if drop_unknown and not lost.all():
        return {"edge_index": edge_index[:, ~lost], "dropped_edges": int(lost.sum())}
    if lost.any():
        place = int(lost.argmax())
        end = ends[int(unknown[:, place].argmax())]
        got = f"{shown(table[end][place].as_py())}, one of {int(lost.sum())} such edges of {len(lost)}"
        remedy = "add the node, or leave such edges out with drop_unknown_edges=True (--drop-unknown-edges)"
        if drop_unknown:
            remedy = "no edge would be left: check that both files write ids alike"
        problem = f"must be the id of a node in {nodes.name} (got {got})"
        raise refusal(file, problem, remedy, column=end, row=place + 1)
    return {"edge_index": edge_index}


def _positions(file: Path, column: Column, name: str, ids: Column) -> NDArray[np.int64]:
    """Each value's place among the ids, −1 where it has none. Values of different types are compared as text."""
    if not _comparable(column.type):
        raise refusal(file, f"must be ids of nodes (got {column.type})", "use one number or text per edge", column=name)
    if column.type != ids.type:
        try:
            column = column.cast(ids.type)
        except pa.ArrowException:
            column, ids = column.cast(pa.string()), ids.cast(pa.string())
    positions: NDArray[np.int64] = pc.index_in(column, value_set=ids).fill_null(-1).to_numpy().astype(np.int64)
    return positions


def _comparable(kind: Any) -> bool:
    """Whether values of this type can be looked up, and compared as text with those of another."""
    types = pa.types
    if types.is_float16(kind):
        return False
    return bool(types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind) or columns.is_text(kind))
