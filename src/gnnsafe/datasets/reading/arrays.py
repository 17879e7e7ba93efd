"""A graph from named arrays, once they are known to fit together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnsafe.datasets.reading.refusal import listed, refusal, shown, warn_of_coarse

__all__ = ["ARRAY_NAMES", "graph_from_arrays"]

Arrays = Mapping[str, NDArray[Any]]

MASKS = ("train_mask", "val_mask", "test_mask")
ARRAY_NAMES = ("x", "edge_index", "y", *MASKS, "timestamp", "node_id", "class_names")


def graph_from_arrays(file: Path, arrays: Arrays, *, drop_unknown_edges: bool) -> dict[str, Any]:
    """The parts of the graph, by name."""
    for name in ("x", "edge_index"):
        if name not in arrays:
            raise refusal(file, f"has no '{name}' (found: {listed(arrays)})", "write the graph's x and edge_index")
    parts: dict[str, Any] = {"x": _features(file, arrays["x"])}
    nodes = len(parts["x"])
    parts |= _edges(file, arrays["edge_index"], nodes, drop_unknown_edges)
    each = {name: _per_node(file, name, arrays[name], nodes) for name in ARRAY_NAMES[2:-1] if name in arrays}
    parts["node_id"] = _ids(file, each.pop("node_id", np.arange(nodes)))
    if "y" in each:
        parts["y"], names = _labels(file, each.pop("y"))
        parts["class_names"] = names or _class_names(file, arrays.get("class_names"), int(parts["y"].max()) + 1)
    if "timestamp" in each:
        parts["timestamp"] = _times(file, each.pop("timestamp"))
    for name, mask in each.items():
        if mask.dtype != np.bool_:
            raise refusal(file, f"must be boolean (got {mask.dtype})", f"write {name} as boolean", key=name)
    _check_training(file, each.get("train_mask"), parts.get("y"))
    if each:  # all three or none, as of a table with a split
        parts |= {name: each.get(name, np.zeros(nodes, dtype=np.bool_)) for name in MASKS}
    return parts


def _features(file: Path, x: NDArray[Any]) -> NDArray[np.float32]:
    if x.ndim != 2 or x.dtype.kind not in "fiub" or not x.size:
        raise refusal(
            file, f"must be numbers of shape [nodes, features] (got {_kind(x)})", "write such an array", key="x"
        )
    with np.errstate(over="ignore"):  # an overflow is infinite, and found so
        features = np.ascontiguousarray(x, dtype=np.float32)
    finite = np.isfinite(features)
    if not finite.all():
        row, column = divmod(int(finite.argmin()), x.shape[1])
        raise refusal(file, f"must be a finite number (got {x[row, column]})", "correct it", key=f"x[{row}, {column}]")
    if x.dtype.itemsize > features.itemsize:
        warn_of_coarse(file, [f"x[:, {column}]" for column in range(x.shape[1])], x.min(axis=0), x.max(axis=0))
    return features


def _edges(file: Path, edges: NDArray[Any], nodes: int, drop_unknown: bool) -> dict[str, Any]:
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise refusal(
            file,
            f"must be whole numbers of shape [2, edges] (got {_kind(edges)})",
            "write sources in its first row, targets in its second",
            key="edge_index",
        )
    outside = (edges < 0) | (edges >= nodes)
    lost = outside.any(axis=0)
    edge_index = edges.astype(np.int64)
    if drop_unknown and not (lost.size and lost.all()):
        return {"edge_index": edge_index[:, ~lost], "dropped_edges": int(lost.sum())}
    if lost.any():
        column = int(lost.argmax())
        row = int(outside[:, column].argmax())
        raise refusal(
            file,
            f"must be a node, 0 to {nodes - 1} (got {edges[row, column]})",
            "correct it, or leave such edges out with drop_unknown_edges=True (--drop-unknown-edges)",
            key=f"edge_index[{row}, {column}]",
        )
    return {"edge_index": edge_index}


def _per_node(file: Path, name: str, values: NDArray[Any], nodes: int) -> NDArray[Any]:
    if values.shape == (nodes, 1):
        values = values[:, 0]
    if values.shape != (nodes,):
        raise refusal(
            file,
            f"must have shape [{nodes}], one entry for each node of x (got {list(values.shape)})",
            f"write {name} so",
            key=name,
        )
    return values


def _ids(file: Path, ids: NDArray[Any]) -> list[Any]:
    if ids.dtype.kind not in "iufU":
        raise refusal(file, f"must be numbers or text (got {_kind(ids)})", "use one of either per node", key="node_id")
    if ids.dtype.kind == "f" and (missing := np.isnan(ids)).any():
        place = int(missing.argmax())
        raise refusal(file, "must be given (got nan)", "give every node an id", key=f"node_id[{place}]")
    _check_text(file, "node_id", ids)
    _, first, back = np.unique(ids, return_index=True, return_inverse=True)
    repeated = first[back] != np.arange(len(ids))
    if repeated.any():
        place = int(repeated.argmax())
        raise refusal(
            file,
            f"must be unique (got {shown(ids[place].item())}, as in node_id[{first[back[place]]}])",
            "remove or rename one of the two",
            key=f"node_id[{place}]",
        )
    return list(ids.tolist())


def _check_text(file: Path, name: str, values: NDArray[Any]) -> None:
    """Text is such as a file can hold: numpy and pickles take half of a pair of surrogates for a letter."""
    for place, value in enumerate(values.tolist() if values.dtype.kind == "U" else ()):
        try:
            value.encode()
        except UnicodeEncodeError:
            problem = f"must be text that UTF-8 can hold (got {shown(value)}, with a lone surrogate)"
            raise refusal(file, problem, "correct it", key=f"{name}[{place}]") from None


def _class_names(file: Path, names: NDArray[Any] | None, classes: int) -> list[str] | None:
    if names is None:
        return None
    if names.ndim != 1 or names.dtype.kind != "U" or len(names) < classes:
        problem = f"must hold a name for each of the {classes} classes of y (got {_kind(names)})"
        raise refusal(file, problem, "write a list of text", key="class_names")
    _check_text(file, "class_names", names)
    return list(names.tolist())


def _labels(file: Path, y: NDArray[Any]) -> tuple[NDArray[np.int64], list[str] | None]:
    """Class numbers, −1 where there is none, and the classes' names, sorted, if the labels are text."""
    if y.dtype.kind == "U":
        _check_text(file, "y", y)
        names, number = np.unique(y, return_inverse=True)
        nameless = int(names[0] == "")  # sorted before all names
        return number.astype(np.int64) - nameless, names[nameless:].tolist()
    if y.dtype.kind not in "fiub":
        raise refusal(file, f"must be whole numbers or names (got {_kind(y)})", "write class numbers", key="y")
    known = np.where(np.isnan(y), -1, y)
    wrong = (known != np.floor(known)) | (known < -1) | (known >= 2**53)
    if wrong.any():
        place = int(wrong.argmax())
        raise refusal(
            file, f"must be a whole number >= 0, or -1 for none (got {y[place]})", "correct it", key=f"y[{place}]"
        )
    return known.astype(np.int64), None


def _times(file: Path, times: NDArray[Any]) -> NDArray[Any]:
    if times.dtype.kind not in "fiu":
        raise refusal(file, f"must be numbers (got {_kind(times)})", "convert it", key="timestamp")
    floats = times.dtype.kind == "f"
    wrong = ~np.isfinite(times) if floats else times > np.iinfo(np.int64).max
    if wrong.any():
        place = int(wrong.argmax())
        rule = "must be a finite number" if floats else "must be a whole number below 2**63"
        raise refusal(file, f"{rule} (got {times[place]})", "correct it", key=f"timestamp[{place}]")
    return times.astype(np.float64 if floats else np.int64)


def _check_training(file: Path, train: NDArray[np.bool_] | None, y: NDArray[np.int64] | None) -> None:
    if train is None:
        return
    unlabelled = train if y is None else train & (y < 0)
    if unlabelled.any():
        raise refusal(
            file,
            "must be given for a training node (got none)",
            "label it, or take it out of train_mask",
            key=f"y[{int(unlabelled.argmax())}]",
        )


def _kind(array: NDArray[Any]) -> str:
    return f"{array.dtype} {list(array.shape)}"
