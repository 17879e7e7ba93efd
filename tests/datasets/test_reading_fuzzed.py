"""Files mutated at random, from fixed seeds: a graph that says what the file says, or one line; nothing else ever.

For a longer session: GNNSAFE_FUZZ=20000 pytest tests/datasets/test_reading_fuzzed.py
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from gnnsafe import read_graph
from gnnsafe.errors import GraphFileError

CASES = int(os.environ.get("GNNSAFE_FUZZ", "250"))
MEMORY = 200 * 2**20  # bytes that none of these small files may take
CELLS = [
    "", " ", "0x1F", "0X1", "01", "-0", "+1", "1e0", "1.0", "1,,2", "nan", "NaN", "inf", "-Infinity", "1e400", "1e39",
    "9223372036854775807", "9223372036854775808", "18446744073709551616", "1_000", "１", "٣", "True", "false", "NULL",
    "2020-01-01", "2020-02-30", "12:00:00", "[1,2]", '"', '"x"', "a,b", "\r", "\n", "\x00", "\ufeff", "é", "train",
    "-1", "2", "1 2", "1;2", "0.1", ".5", "5.", "--1", "1e", "x" * 300,
]  # fmt: skip
ARRAYS: list[Any] = [
    np.zeros((0, 0)), np.zeros(3), np.zeros((3, 2), complex), np.array([[1.5, 1], [0, 2]]), np.zeros((2, 2), "M8[s]"),
    np.array([[0, 3], [1, 0]]), np.array([[0, -1], [1, 0]]), np.array([[0], [2]], np.uint64), np.array(["a", "b", "a"]),
    np.array([1, np.nan, np.inf]), np.array([2**63, 1, 2], np.uint64), np.array([True, False, True]),
    np.array([[True], [False], [True]]), np.full((3, 2), 1e39), np.float16([[1, 2], [3, 4], [5, 6]]), np.array(5.0),
    np.zeros((3, 2), "S2"), np.zeros((3, 2), "m8[s]"), np.array([0.5, 1, 2]), np.zeros((3, 0)), np.eye(3, dtype="i1"),
]  # fmt: skip


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """What is done here takes little memory (where that can be measured)."""
    reset = Path("/proc/self/clear_refs")
    if not os.access(reset, os.W_OK):
        yield
        return
    reset.write_text("5")
    before = peak_memory()
    yield
    assert peak_memory() - before < MEMORY


def peak_memory() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def graph_or_none(path: Path) -> Any:
    """The graph, or None where it is refused in one line."""
    try:
        return read_graph(path)
    except GraphFileError as error:
        line = str(error)
    assert "\n" not in line
    assert "; " in line
    return None


def mutated(raw: bytes, rng: np.random.Generator, tokens: list[bytes]) -> bytes:
    """Some bytes changed, taken out, doubled, or replaced by a token."""
    content = bytearray(raw)
    for _ in range(rng.integers(1, 4)):
        start = int(rng.integers(len(content) + 1))
        stop = min(start + int(rng.integers(0, 6)), len(content))
        new = [bytes(rng.integers(256, size=1, dtype=np.uint8)), b"", bytes(content[start:stop]) * 2]
        content[start:stop] = tokens[rng.integers(len(tokens))] if rng.random() < 0.4 else new[rng.integers(3)]
    return bytes(content)


# CSV: what Python's own reader makes of the cells


NODES = [
    ["id", "a", "label", "split", "timestamp", "b"],
    ["0", "1.5", "0", "train", "2020-01-01", "7"],
    ["1", "-2", "1", "val", "2021-01-01", "8"],
    ["x", "3e1", "", "", "2022-01-01", "9"],
]
EDGES = [["source", "target"], ["0", "1"], ["1", "x"], ["x", "0"]]
LISTS = [["id", "features"], ["0", "[1, 2]"], ["1", "3 4"], ["2", "5;6"]]
WHOLE = [["source", "target"], ["0", "1"], ["1", "2"]]


def written(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def cells(raw: bytes) -> list[list[str]]:
    """The rows of a file that was accepted; empty lines are none."""
    text = raw.decode("utf-8-sig", errors="replace")  # a column that is not read may hold any bytes
    return [row for row in csv.reader(io.StringIO(text, newline=""), strict=False) if row]


def check_csv(data: Any, nodes: bytes, edges: bytes) -> None:
    """Ids, features and edges are those of the cells, by other code than ours."""
    (header, *rows), (ends, *pairs) = cells(nodes), cells(edges)
    column = {name.strip().lower(): place for place, name in enumerate(header)}
    ids = [row[column.get("id", column.get("node_id", 0))] for row in rows]
    assert [str(node) for node in data.node_id] == ids
    names = getattr(data, "feature_names", None)
    for row, values in zip(rows, data.x.tolist(), strict=True):
        if names is None:
            listed = row[column.get("features", column.get("x", 0))]
            said = [number(part) for part in re.split(r"\s*[,;]\s*|\s+", listed.strip(" \t\r\n[]()"))]
        else:
            said = [number(row[header.index(name)]) for name in names]
        assert values == pytest.approx(said, rel=1e-6)
    found = {name.strip().lower(): place for place, name in enumerate(ends)}
    for name, kept in zip((("source", "src"), ("target", "dst")), data.edge_index.tolist(), strict=True):
        place = next(found[one] for one in name if one in found)
        whole = isinstance(data.node_id[0], int)
        assert [ids[node] for node in kept] == [row[place].strip() if whole else row[place] for row in pairs]


def number(text: str) -> float:
    """What a cell says, where it is a number in decimal digits, or true or false."""
    text = text.strip()
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    assert re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII), f"{text!r} was taken for a number"
    return float(text)


def test_csv_cells(tmp_path):
    rng = np.random.default_rng(0)
    read = 0
    with bounded():
        for _ in range(CASES):
            tables = [[[*row] for row in rows] for rows in ((NODES, EDGES) if rng.random() < 0.7 else (LISTS, WHOLE))]
            for _ in range(rng.integers(1, 3)):
                rows = tables[rng.integers(2)]
                row = rows[rng.integers(len(rows))]
                row[rng.integers(len(row))] = CELLS[rng.integers(len(CELLS))]
            nodes, edges = map(written, tables)
            (tmp_path / "nodes.csv").write_bytes(nodes)
            (tmp_path / "edges.csv").write_bytes(edges)
            if (data := graph_or_none(tmp_path)) is not None:
                check_csv(data, nodes, edges)
                read += 1
    assert 0 < read < CASES


def test_csv_bytes(tmp_path):
    rng = np.random.default_rng(1)
    tokens = [cell.encode() for cell in CELLS]
    with bounded():
        for _ in range(CASES):
            whole = [written(rows) for rows in ((NODES, EDGES) if rng.random() < 0.7 else (LISTS, WHOLE))]
            place = int(rng.integers(2))
            whole[place] = mutated(whole[place], rng, tokens)
            for name, raw in zip(("nodes", "edges"), whole, strict=True):
                (tmp_path / f"{name}.csv").write_bytes(raw)
            data = graph_or_none(tmp_path)
            if data is not None and not any(odd in whole[place] for odd in (b'"', b"\r", b"\x00")):
                check_csv(data, *whole)  # quotes astray have no one reading


# Parquet, arrays and tensors


def test_parquet_bytes(tmp_path):
    rng = np.random.default_rng(2)
    nodes = {"id": ["a", "b", "c"], "features": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "label": ["r", "b", None]}
    parquet.write_table(pa.table(nodes), tmp_path / "nodes.parquet", write_page_checksum=True)
    parquet.write_table(
        pa.table({"source": ["a", "b"], "target": ["c", "a"]}), tmp_path / "edges.parquet", write_page_checksum=True
    )
    whole = {file: file.read_bytes() for file in sorted(tmp_path.iterdir())}
    with bounded():
        for _ in range(CASES):
            file = list(whole)[rng.integers(2)]
            file.write_bytes(mutated(whole[file], rng, [b"\xff" * 4, b"\x00" * 4, b"\x80" * 9]))
            if (data := graph_or_none(tmp_path)) is not None:
                assert data.x.shape[0] == len(data.node_id)
                assert 0 <= data.edge_index.min() <= data.edge_index.max() < len(data.x)
            file.write_bytes(whole[file])


GRAPH: dict[str, Any] = {
    "x": np.arange(6.0).reshape(3, 2), "edge_index": np.array([[0, 1], [1, 2]]), "y": np.array([0, 1, -1]),
    "train_mask": np.array([True, True, False]), "timestamp": np.array([1, 2, 3]), "node_id": np.array([5, 6, 7]),
}  # fmt: skip


def check_arrays(data: Any, arrays: dict[str, Any]) -> None:
    """Every number is the array's own."""
    np.testing.assert_array_equal(data.x, arrays["x"].astype(np.float32))
    np.testing.assert_array_equal(data.edge_index.numpy().astype(object), arrays["edge_index"].astype(object))
    for name in ("y", "train_mask", "timestamp"):
        if name in arrays and arrays[name].dtype.kind != "U":
            said = arrays[name].reshape(-1)
            kept = np.asarray(data[name])
            same = (kept == said) | ((kept == -1) & (said != said)) if name == "y" else kept == said
            assert same.all(), name
    assert data.node_id == arrays.get("node_id", np.arange(len(data.x))).reshape(-1).tolist()


@pytest.mark.parametrize("ending", ["npz", "pt"])
def test_arrays_of_other_kinds(tmp_path, ending):
    rng = np.random.default_rng(3)
    file = tmp_path / f"g.{ending}"
    with bounded():
        for _ in range(CASES):
            arrays = dict(GRAPH)
            for name in rng.choice([*GRAPH], size=rng.integers(1, 3), replace=False).tolist():
                arrays[name] = ARRAYS[rng.integers(len(ARRAYS))]
                if ending == "pt" and arrays[name].dtype.kind not in "fiubc":
                    arrays[name] = np.zeros((3, 2), np.int16)
            if ending == "npz":
                np.savez(file, **arrays)
            else:
                torch.save({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, file)
            if (data := graph_or_none(file)) is not None:
                check_arrays(data, arrays)


@pytest.mark.parametrize("ending", ["npz", "pt"])
def test_bytes_of_arrays(tmp_path, ending):
    rng = np.random.default_rng(4)
    file = tmp_path / f"g.{ending}"
    if ending == "npz":
        np.savez(file, **GRAPH)
    else:
        torch.save({name: torch.from_numpy(array) for name, array in GRAPH.items()}, file)
    whole = file.read_bytes()
    with bounded():
        for _ in range(CASES):
            file.write_bytes(mutated(whole, rng, [b"PK\x03\x04", b"\xff" * 4, b"\x00" * 8, b"K\xff", b"M\xff\x7f"]))
            if (data := graph_or_none(file)) is not None and ending == "npz":
                kept = {name: array for name, array in GRAPH.items() if name in ("x", "edge_index") or name in data}
                kept |= {} if data.node_id == [5, 6, 7] else {"node_id": np.arange(3)}  # its name was changed
                check_arrays(data, kept)
