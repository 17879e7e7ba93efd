"""A user's own graph: every format there and back, and every broken file refused in one line that says where."""

from __future__ import annotations

import pickle
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData

from gnnsafe import read_graph
from gnnsafe.errors import GraphFileError, MissingExtraError
from gnnsafe.prepared import admit

NODES = {
    "id": ["ann", "bob", "cy", "dan"],
    "age": [30, 41, 52, 63],
    "name": ["Ann", "Bob", "Cy", "Dan"],
    "height": [1.5, 1.75, 2.0, 1.25],
    "label": ["red", "blue", None, "red"],
    "split": ["train", "val", None, "test"],
    "timestamp": [2017, 2018, 2019, 2020],
}
EDGES = {"strength": [0.5, 0.5, 0.5], "source": ["ann", "bob", "ann"], "target": ["bob", "cy", "bob"]}
FORMATS = pytest.mark.parametrize("ending", ["parquet", "csv"])


def write_table(file: Path, columns: dict | pa.Table) -> Path:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    parquet.write_table(table, file) if file.suffix == ".parquet" else csv.write_csv(table, file)
    return file


def write_graph(folder: Path, ending: str = "csv", nodes: object = NODES, edges: object = EDGES) -> Path:
    for name, content in {"nodes": nodes, "edges": edges}.items():
        file = folder / f"{name}.{ending}"
        file.write_bytes(content) if isinstance(content, bytes) else write_table(file, content)
    return folder


def refusal(path: Path, **options: object) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(GraphFileError) as error:
        read_graph(path, **options)
    line = str(error.value)
    assert "\n" not in line
    assert "; " in line, "no remedy"
    return line


# Tables


@FORMATS
def test_a_folder_of_tables(tmp_path, ending):
    data = read_graph(write_graph(tmp_path, ending))
    admit(data, num_features=2)
    assert data.x.tolist() == [[30, 1.5], [41, 1.75], [52, 2], [63, 1.25]]
    assert data.x.dtype == torch.float32
    assert data.x.is_contiguous()
    assert data.edge_index.tolist() == [[0, 1, 0], [1, 2, 1]]
    assert data.edge_index.dtype == torch.int64
    assert data.y.tolist() == [1, 0, -1, 1]
    assert data.class_names == ["blue", "red"]
    assert data.node_id == ["ann", "bob", "cy", "dan"]
    assert data.feature_names == ["age", "height"]
    assert data.ignored_columns == ["name"]
    assert [data[f"{part}_mask"].nonzero().flatten().tolist() for part in ("train", "val", "test")] == [[0], [1], [3]]
    assert data.timestamp.tolist() == [2017, 2018, 2019, 2020]
    assert data.timestamp.dtype == torch.int64


def test_a_pair_of_files_and_other_names_for_the_columns(tmp_path):
    nodes = write_table(tmp_path / "people.csv", {"node_id": [7, 5], "y": [3, 0], "age": [0.5, 1.5]})
    edges = write_table(tmp_path / "calls.parquet", {"dst": [5, 5], "src": [7, 5]})
    data = read_graph(nodes, edges=str(edges))
    assert data.node_id == [7, 5]
    assert data.y.tolist() == [3, 0]
    assert data.edge_index.tolist() == [[0, 1], [1, 1]]
    assert set(data.keys()) == {"x", "edge_index", "y", "node_id", "feature_names"}


def test_ids_stay_with_their_nodes_in_a_subgraph(tmp_path):
    data = read_graph(write_graph(tmp_path))
    assert data.subgraph(torch.tensor([False, True, True, False])).node_id == ["bob", "cy"]


@pytest.mark.parametrize(
    ("ids", "ends"),
    [
        (pa.array([1, 2], pa.int32()), pa.array([2, 1], pa.int64())),
        (pa.array([1, 2], pa.uint64()), pa.array([2.0, 1.0])),
        (pa.array([1, 2]), pa.array(["2", "1"])),
        (pa.array(["1", "2"]), pa.array([2, 1])),
        (pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "a"], pa.large_string())),
        (pa.array([0, 1], pa.date32()), pa.array([1, 0], pa.date32())),
    ],
    ids=lambda column: str(column.type),
)
def test_ids_of_different_types_meet(tmp_path, ids, ends):
    write_graph(tmp_path, "parquet", {"id": ids, "a": [0, 0]}, {"source": ends, "target": ids})
    data = read_graph(tmp_path)
    assert data.edge_index.tolist() == [[1, 0], [0, 1]]
    assert data.node_id == ids.to_pylist()


def test_csv_ids_are_text_unless_all_are_whole_numbers(tmp_path):
    write_graph(tmp_path, nodes=b"id,a\n007,1\nNA,2\n", edges=b"source,target\nNA,007\n")
    assert read_graph(tmp_path).node_id == ["007", "NA"]
    write_graph(tmp_path, nodes=b"id,a\n-7,1\n10,2\n", edges=b"source,target\n10,-7\n")
    assert read_graph(tmp_path).node_id == [-7, 10]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float64()), pa.large_list(pa.int16()), pa.list_(pa.float32(), 2)], ids=str
)
@pytest.mark.parametrize("name", ["features", "x"])
def test_features_in_a_list_column(tmp_path, kind, name):
    nodes = {"id": [0, 1], name: pa.array([[1, 2], [3, 4]], kind), "other": [5, 6]}
    data = read_graph(write_graph(tmp_path, "parquet", nodes, {"source": [0], "target": [1]}))
    assert data.x.tolist() == [[1, 2], [3, 4]]
    assert data.ignored_columns == ["other"]


def test_numbers_of_csv_may_be_written_in_any_usual_way(tmp_path):
    rows = b"".join(b"%d,%s\n" % row for row in enumerate([b"+1", b"-.5", b"1E+2", b" 3", b"4."]))
    write_graph(tmp_path, nodes=b"id,a\n" + rows, edges=b"source,target\n0,1\n")
    assert read_graph(tmp_path).x.flatten().tolist() == [1, -0.5, 100, 3, 4]


def test_features_in_a_list_column_of_csv(tmp_path):
    write_graph(tmp_path, nodes=b'id,features\n0,"[0.5, 1]"\n1,"[2\n 3]"\n2,4;5\n', edges=b"source,target\n0,1\n")
    assert read_graph(tmp_path).x.tolist() == [[0.5, 1], [2, 3], [4, 5]]


def test_numbers_of_any_kind_are_features(tmp_path):
    kinds = {
        "whole": pa.array([1, 2], pa.uint8()), "yes": [True, False], "text": pa.array(["1e1", "2"], pa.string_view()),
        "half": np.float16([1, 2]), "decimal": pa.array([1, 2]).cast(pa.decimal128(21, 2)),
        "words": ["a", "b"], "when": pa.array([1, 2], pa.date32()),
    }  # fmt: skip
    write_graph(tmp_path, "parquet", {"id": [0, 1], **kinds}, {"source": [0], "target": [1]})
    data = read_graph(tmp_path)
    assert data.x.tolist() == [[1, 1, 10, 1, 1], [2, 0, 2, 2, 2]]
    assert data.ignored_columns == ["words", "when"]


@pytest.mark.parametrize(
    ("column", "expected", "names"),
    [
        ([2, None, -1], [2, -1, -1], None),
        ([2.0, None, float("nan")], [2, -1, -1], None),
        ([True, False, None], [1, 0, -1], None),
        (["10", "9", ""], [0, 1, -1], ["10", "9"]),
        (pa.array(["b", None, "a"]).dictionary_encode(), [1, -1, 0], ["a", "b"]),
    ],
)
def test_labels(tmp_path, column, expected, names):
    write_graph(tmp_path, "parquet", {"id": [0, 1, 2], "a": [0] * 3, "label": column}, {"source": [0], "target": [1]})
    data = read_graph(tmp_path)
    assert data.y.tolist() == expected
    assert data.y.dtype == torch.int64
    assert data.get("class_names") == names


@pytest.mark.parametrize(
    ("written", "expected"), [("1.0,,3", [1, -1, 3]), (",,", [-1, -1, -1]), ("0,-1,1", [0, -1, 1])]
)
def test_labels_of_csv_are_numbers_if_all_are(tmp_path, written, expected):
    rows = "".join(f"{row},0,{label}\n" for row, label in enumerate(written.split(",")))
    write_graph(tmp_path, nodes=f"id,a,label\n{rows}".encode(), edges=b"source,target\n0,1\n")
    assert read_graph(tmp_path).y.tolist() == expected


@pytest.mark.parametrize(
    ("written", "expected", "dtype"),
    [
        (["2020-01-01", "1969-12-31"], [1577836800, -86400], torch.int64),
        (["2020-01-01 00:00:01", "1970-01-01 00:00:00"], [1577836801, 0], torch.int64),
        (["0.5", "7"], [0.5, 7.0], torch.float64),
    ],
)
def test_timestamps(tmp_path, written, expected, dtype):
    rows = "".join(f"{row},0,{time}\n" for row, time in enumerate(written))
    data = read_graph(write_graph(tmp_path, nodes=f"id,a,timestamp\n{rows}".encode(), edges=b"source,target\n0,1\n"))
    assert data.timestamp.tolist() == expected
    assert data.timestamp.dtype == dtype


def test_capitals_and_spaces_in_column_names_hide_no_label(tmp_path):
    nodes = b"ID, Label, a, Split\n1, 0, 5, train\n2, 1, 6, \n"
    data = read_graph(write_graph(tmp_path, nodes=nodes, edges=b"Source, Target\n1,2\n"))
    assert data.x.tolist() == [[5], [6]]
    assert data.edge_index.tolist() == [[0], [1]]
    assert data.y.tolist() == [0, 1]
    assert data.train_mask.tolist() == [True, False]


def test_a_byte_order_mark_and_windows_line_ends_are_no_trouble(tmp_path):
    write_graph(tmp_path, nodes=b"\xef\xbb\xbfid,a\r\n0,1\r\n1,2\r\n", edges=b"\xef\xbb\xbfsource,target\r\n0,1\r\n")
    assert read_graph(tmp_path).x.tolist() == [[1], [2]]


@FORMATS
def test_undirected_adds_reverses_and_removes_repeats(tmp_path, ending):
    data = read_graph(write_graph(tmp_path, ending), undirected=True)
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    admit(data)


@FORMATS
def test_unknown_edges_are_dropped_and_counted_on_request(tmp_path, ending):
    write_graph(tmp_path, ending, edges={"source": ["ann", "eve", None, "bob"], "target": ["fay", "ann", "cy", "cy"]})
    data = read_graph(tmp_path, drop_unknown_edges=True)
    assert data.edge_index.tolist() == [[1], [2]]
    assert data.dropped_edges == 3
    write_graph(tmp_path, ending)
    assert read_graph(tmp_path, drop_unknown_edges=True).dropped_edges == 0


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(
    ids=st.one_of(st.lists(names, min_size=1, max_size=8, unique=True),
                  st.lists(st.integers(-(10**17), 10**17), min_size=1, max_size=8, unique=True)),
    ending=st.sampled_from(["parquet", "csv"]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_a_random_graph_comes_back(tmp_path_factory, ids, ending, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(len(ids), 3)).astype(np.float32)
    edges = rng.integers(len(ids), size=(2, 9))
    source, target = ([ids[end] for end in ends] for ends in edges)
    nodes = {"f1": x[:, 0], "id": ids, "f2": x[:, 1], "label": rng.integers(4, size=len(ids)), "f3": x[:, 2]}
    folder = write_graph(tmp_path_factory.mktemp("graph"), ending, nodes, {"target": target, "source": source})
    data = read_graph(folder)
    whole = ending == "csv" and all(str(name).isascii() and str(name).lstrip("-").isdigit() for name in ids)
    assert data.node_id == ids or (whole and [str(name) for name in data.node_id] == ids)
    assert np.array_equal(data.x.numpy(), x)
    assert np.array_equal(data.edge_index.numpy(), edges)
    assert data.y.tolist() == nodes["label"].tolist()


# Tables that break a rule

BROKEN_NODES = {
    "id missing": (b"name,a\nx,1\n", ": has no column 'id' or 'node_id' (found: name, a)"),
    "id twice": (b"id,a\n5,1\n6,2\n5,3\n", ", column 'id', row 3: must be unique (got 5, as in row 1)"),
    "id null": (b"id,a\nx,1\n,2\n", ", column 'id', row 2: must be given (got nothing)"),
    "two ids": (b"id,node_id,a\n1,1,1\n", ": columns 'id' and 'node_id' mean the same"),
    "column twice": (b"id,a,a\n1,1,1\n", ", column 'a': stands more than once"),
    "no rows": (b"id,a\n", ": must have at least one row (got none)"),
    "empty": (b"", ": must start with a line of column names"),
    "no features": (b"id,name\n1,a\n", ": has no feature column"),
    "word": (b"id,a\nx,1\ny,many\n", ", column 'a', row 2: must be a finite number (got 'many')"),
    "NA": (b"id,a\nx,NA\ny,1\n", ", column 'a', row 1: must be a finite number (got 'NA')"),
    "NaN": (b"id,a\nx,1\ny,NaN\n", ", column 'a', row 2: must be a finite number (got nan)"),
    "inf": (b"id,a\nx,1\ny,2\nz,-inf\n", ", column 'a', row 3: must be a finite number (got -inf)"),
    "too large": (b"id,a\nx,1e200\n", ", column 'a', row 1: must be a finite number (got 1e+200)"),
    "empty feature": (b"id,a\nx,1\ny,\n", ", column 'a', row 2: must be a finite number (got nothing)"),
    "empty column": (b"id,a\nx,\ny,\n", ", column 'a', row 1: must be a finite number (got nothing)"),
    "widths": (
        b'id,x\n1,"[1,2]"\n2,"[1,2]"\n3,"[1]"\n',
        ", column 'x', row 3: must hold 2 numbers, as row 1 does (got 1)",
    ),
    "word in list": (b'id,x\n1,"[1,2]"\n2,"[1,two]"\n', ", column 'x', row 2: must be a finite number (got 'two')"),
    "words in list": (b'id,x\n1,"[a,b]"\n', ", column 'x', row 1: must be a finite number (got 'a')"),
    "no list": (b'id,x\n1,"[1,2]"\n2,\n', ", column 'x', row 2: must hold a list of numbers (got nothing)"),
    "training label": (
        b"id,a,label,split\n1,1,red,train\n2,1,,val\n3,1,,train\n",
        ", column 'label', row 3: must be given for a training node",
    ),
    "no labels": (b"id,a,split\n1,1,\n2,1,train\n", ", column 'label', row 2: must be given for a training node"),
    "label type": (
        b"id,a,label\n1,1,\n2,1,3\n3,1,4\n4,1,red\n",
        ", column 'label', row 4: must be a number, as the labels before it are (got 'red')",
    ),
    "label type back": (
        b"id,a,label\n1,1,red\n2,1,3\n",
        ", column 'label', row 2: must be a name, as the labels before it are (got '3')",
    ),
    "fraction": (
        b"id,a,y\n1,1,0\n2,1,0.5\n",
        ", column 'y', row 2: must be a whole number >= 0, or a name (got '0.5')",
    ),
    "negative": (b"id,a,y\n1,1,-2\n", ", column 'y', row 1: must be a whole number >= 0, or a name (got '-2')"),
    "split": (
        b"id,a,split\n1,1,val\n2,1,valid\n",
        ", column 'split', row 2: must be one of train, val, test (got 'valid'); did you mean 'val'?",
    ),
    "split far": (
        b"id,a,split\n1,1,7\n",
        ", column 'split', row 1: must be one of train, val, test (got '7'); leave it empty",
    ),
    "no time": (b"id,a,timestamp\n1,1,5\n2,1,\n", ", column 'timestamp', row 2: must be given (got nothing)"),
    "time": (
        b"id,a,timestamp\n1,1,soon\n",
        ", column 'timestamp', row 1: must be a number or a date (got text, 'soon')",
    ),
    "date": (
        b"id,a,timestamp\n1,1,2020-01-01\n2,1,2020-13-01\n",
        ", column 'timestamp', row 2: must be a date, as row 1 is (got '2020-13-01')",
    ),
    "year": (
        b"id,a,timestamp\n1,1,2020\n2,1,2020-11-01\n",
        ", column 'timestamp', row 2: must be a number, as row 1 is (got '2020-11-01')",
    ),
    "Infinity": (b"id,a\n1,1\n2,Infinity\n", ", column 'a', row 2: must be a finite number (got "),
    "latin-1": (b"id,a,name\n1,1,Ann\n2,1,Zo\xeb\n", ", column 'name', row 2: must be UTF-8 (got byte 0xeb)"),
    "latin-1 id": (b"id,a\nZo\xeb,1\n", ", column 'id', row 1: must be UTF-8 (got byte 0xeb)"),
    "latin-1 header": (b"id,a,Zo\xeb\n1,1,1\n", ": must be UTF-8 (got byte 0xeb)"),
    "utf-16": ("id,a\n1,1\n".encode("utf-16"), ": must be UTF-8"),
    "cut short": (b"id,a,b\n1,1,1\n2,1", ", row 2: must have 3 fields, as the header has (got 2)"),
    "too long": (b"id,a\n1,1\n2,0,5\n3,1\n", ", row 2: must have 2 fields, as the header has (got 3)"),
}


@pytest.mark.parametrize(("nodes", "said"), BROKEN_NODES.values(), ids=BROKEN_NODES)
def test_a_broken_node_table_is_refused(tmp_path, nodes, said):
    assert f"nodes.csv{said}" in refusal(write_graph(tmp_path, nodes=nodes, edges=b"source,target\n1,1\n"))


BROKEN_EDGES = {
    "unknown": (
        b"source,target\nann,bob\nbob,eve\neve,ann\n",
        ", column 'target', row 2: must be the id of a node in nodes.csv (got 'eve', one of 2 such edges of 3)",
    ),
    "null": (
        b"source,target\nann,bob\n,bob\n",
        ", column 'source', row 2: must be the id of a node in nodes.csv (got nothing",
    ),
    "column": (b"from,to\nann,bob\n", ": has no column 'source' or 'src' (found: from, to)"),
    "no rows": (b"source,target\n", ": must have at least one row"),
    "cut short": (b"source,target\nann,bob\nbob\n", ", row 2: must have 2 fields"),
    "latin-1": (b"source,target\nann,Zo\xeb\n", ", column 'target', row 1: must be UTF-8"),
}


@pytest.mark.parametrize(("edges", "said"), BROKEN_EDGES.values(), ids=BROKEN_EDGES)
def test_a_broken_edge_table_is_refused(tmp_path, edges, said):
    assert f"edges.csv{said}" in refusal(write_graph(tmp_path, edges=edges))


def test_edges_whose_ids_cannot_be_compared_are_refused(tmp_path):
    write_graph(tmp_path, "parquet", edges={"source": ["ann"], "target": [["bob"]]})
    assert "edges.parquet, column 'target': must be ids of nodes (got list<" in refusal(tmp_path)


def test_ids_of_another_type_that_no_node_has_are_refused(tmp_path):
    write_graph(tmp_path, "parquet", {"id": [1, 2], "a": [0, 0]}, {"source": ["1", "eve"], "target": ["2", "1"]})
    assert "edges.parquet, column 'source', row 2: must be the id of a node" in refusal(tmp_path)


def test_csv_rows_may_be_long_but_not_endless(tmp_path):
    write_graph(tmp_path, nodes=b"id,a,text\n1,2," + b"x" * 2**22, edges=b"source,target\n1,1\n")
    assert read_graph(tmp_path).x.tolist() == [[2]]
    write_graph(tmp_path, nodes=b"id,a,text\n1,2," + b"x" * 2**26)
    assert "nodes.csv: cannot be read as CSV (straddling object" in refusal(tmp_path)
    write_graph(tmp_path, nodes=b'id,"' + b"x" * 2**20)
    assert "nodes.csv: cannot be read as CSV (field larger than field limit" in refusal(tmp_path)


def test_a_graph_that_would_lose_every_edge_is_refused(tmp_path):
    write_graph(tmp_path, edges=b"source,target\n1,2\n2,1\n")
    assert "no edge would be left: check that both files write ids alike" in refusal(tmp_path, drop_unknown_edges=True)


BROKEN_COLUMNS = {
    "id twice": (
        {"id": ["a", "a"], "f": [1, 2]},
        "column 'id', row 2: must be unique (got 'a', as in row 1)",
    ),
    "id NaN": ({"id": [1.0, float("nan")], "f": [1, 2]}, "column 'id', row 2: must be given (got nothing)"),
    "id list": ({"id": [[1], [2]], "f": [1, 2]}, "column 'id': must be numbers or text"),
    "NaN": ({"id": [1, 2], "f": [1, float("nan")]}, "column 'f', row 2: must be a finite number (got nan)"),
    "null": ({"id": [1, 2], "f": [None, 1]}, "column 'f', row 1: must be a finite number (got nothing)"),
    "word": ({"id": [1, 2], "f": ["1", "many"]}, "column 'f', row 2: must be a finite number (got 'many')"),
    "list lengths": (
        {"id": [1, 2], "features": [[1, 2], [1]]},
        "column 'features', row 2: must hold 2 numbers, as row 1 does",
    ),
    "list NaN": (
        {"id": [1, 2], "features": [[1.0, 2.0], [3.0, float("inf")]]},
        "column 'features', row 2: must be a finite number (got inf)",
    ),
    "list null": (
        {"id": [1, 2], "features": [[1, 2], [None, 1]]},
        "column 'features', row 2: must be a finite number (got nothing)",
    ),
    "lists empty": (
        {"id": [1, 2], "features": pa.array([[], []], pa.list_(pa.int8()))},
        "column 'features': must hold at least one",
    ),
    "id type": ({"id": np.float16([1, 2]), "f": [1, 2]}, "column 'id': must be numbers or text (got halffloat)"),
    "split type": ({"id": [1], "f": [1], "split": [1]}, "column 'split': must hold train, val, test (got int64)"),
    "time type": (
        {"id": [1], "f": [1], "timestamp": [True]},
        "column 'timestamp': must hold numbers or dates (got bool)",
    ),
    "label type": (
        {"id": [1], "f": [1], "label": pa.array([0], pa.date32())},
        "column 'label': must hold whole numbers or names",
    ),
    "rows": (
        {"id": pa.array([], pa.int64()), "f": pa.array([], pa.int64())},
        "nodes.parquet: must have at least one row",
    ),
}


@pytest.mark.parametrize(("nodes", "said"), BROKEN_COLUMNS.values(), ids=BROKEN_COLUMNS)
def test_a_broken_parquet_table_is_refused(tmp_path, nodes, said):
    line = refusal(write_graph(tmp_path, "parquet", nodes, {"source": [1], "target": [1]}))
    assert said in line
    assert "nodes.parquet" in line


@pytest.mark.parametrize("name", ["nodes", "edges"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-20],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"",
        lambda raw: b"PAR1" + bytes(len(raw) - 4),
    ],
)
def test_a_damaged_parquet_file_is_refused(tmp_path, name, damage):
    file = write_graph(tmp_path, "parquet") / f"{name}.parquet"
    file.write_bytes(damage(file.read_bytes()))
    line = refusal(tmp_path)
    assert f"{name}.parquet: cannot be read as Parquet (" in line
    assert "the file may be cut short or damaged" in line


def test_damaged_parquet_pages_are_refused(tmp_path):
    file = write_graph(tmp_path, "parquet") / "edges.parquet"
    raw = file.read_bytes()
    file.write_bytes(raw[:4] + b"\xff" * 200 + raw[204:])
    assert "edges.parquet: cannot be read as Parquet (" in refusal(tmp_path)


@pytest.mark.parametrize("word", [b"bob", b"target"])
def test_parquet_text_that_is_not_utf8_is_refused(tmp_path, word):
    file = write_graph(tmp_path, "parquet") / "edges.parquet"
    file.write_bytes(file.read_bytes().replace(word, b"\xff" * len(word)))
    assert "edges.parquet: cannot be read as Parquet (" in refusal(tmp_path)


def test_what_was_looked_for_is_said(tmp_path):
    assert f"{tmp_path}: must hold nodes.parquet or nodes.csv (found neither)" in refusal(tmp_path)
    nodes = write_table(tmp_path / "nodes.csv", NODES)
    assert "must hold edges.parquet or edges.csv (found neither)" in refusal(tmp_path)
    assert "nodes.csv: is a table of nodes, and no table of edges was given; pass edges=" in refusal(nodes)
    assert "calls.csv: must be a file that is there (found none)" in refusal(nodes, edges=tmp_path / "calls.csv")
    assert "calls.npz: must end in .parquet, .csv (got '.npz')" in refusal(nodes, edges=tmp_path / "calls.npz")
    assert "graph.npz: must be a file that is there (found none)" in refusal(tmp_path / "graph.npz")
    assert "graph.parket: must end in .parquet, .csv, .npz, .pt (got '.parket'); did you mean '.parquet'?" in refusal(
        tmp_path / "graph.parket"
    )


def test_tables_need_pyarrow(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gnnsafe.datasets.reading.")]:
        if hasattr(sys.modules[name], "pa") or name.endswith("tables"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"nodes.csv needs pyarrow: pip install 'gnnsafe\[tables\]'"):
        read_graph(write_graph(tmp_path))


# Arrays

ARRAYS = {
    "x": np.array([[0.5, 1], [2, 3], [4, 5]]), "edge_index": np.array([[0, 1, 0], [1, 2, 1]], dtype=np.int32),
    "y": np.array([1, -1, 0]), "train_mask": np.array([True, False, True]), "timestamp": np.array([1.5, 2, 3]),
}  # fmt: skip


def write_arrays(file: Path, **changes: np.ndarray | None) -> Path:
    arrays = {name: array for name, array in {**ARRAYS, **changes}.items() if array is not None}
    if file.suffix == ".npz":
        np.savez_compressed(file, **arrays)
    else:
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, file)
    return file


@pytest.mark.parametrize("name", ["graph.npz", "graph.pt"])
def test_named_arrays(tmp_path, name):
    data = read_graph(write_arrays(tmp_path / name))
    admit(data, num_features=2)
    assert data.x.dtype == torch.float32
    assert data.x.tolist() == ARRAYS["x"].tolist()
    assert data.edge_index.dtype == torch.int64
    assert data.edge_index.tolist() == ARRAYS["edge_index"].tolist()
    assert data.y.tolist() == [1, -1, 0]
    assert data.train_mask.tolist() == [True, False, True]
    assert data.timestamp.tolist() == [1.5, 2, 3]
    assert data.node_id == [0, 1, 2]
    assert read_graph(tmp_path / name, undirected=True).edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]


def test_names_of_nodes_and_classes_in_npz(tmp_path):
    file = tmp_path / "graph.npz"
    names = np.array(["a", "b"])
    data = read_graph(write_arrays(file, y=np.array(["b", "", "a"]), node_id=np.array(["u", "v", "w"])))
    assert data.y.tolist() == [1, -1, 0]
    assert data.class_names == ["a", "b"]
    assert data.node_id == ["u", "v", "w"]
    assert read_graph(write_arrays(file, y=np.array([[1], [0], [1]]), class_names=names)).class_names == ["a", "b"]
    line = refusal(write_arrays(file, y=np.array([2, 0, 1]), class_names=names))
    assert "class_names: must hold a name for each of the 3 classes of y (got <U1 [2])" in line


@pytest.mark.parametrize("dense", [True, False])
def test_the_gnn_benchmarks_npz(tmp_path, dense):
    adjacency = sp.csr_array(([1.0, 0.0, 1.0], ([0, 1, 2], [1, 2, 2])), shape=(3, 3))
    features = sp.csr_array(ARRAYS["x"])
    arrays = {f"adj_{part}": getattr(adjacency, part) for part in ("data", "indices", "indptr", "shape")}
    if dense:
        arrays["attr_matrix"] = features.toarray()
    else:
        arrays |= {f"attr_{part}": getattr(features, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "g.npz", **arrays, labels=[2, 0, 1], class_names=np.array(["a", None], dtype=object))
    data = read_graph(tmp_path / "g.npz")
    assert data.x.tolist() == ARRAYS["x"].tolist()
    assert data.edge_index.tolist() == [[0, 2], [1, 2]]
    assert data.y.tolist() == [2, 0, 1]
    np.savez(tmp_path / "g.npz", **{**arrays, "adj_indices": np.array([1, 2, 3])})
    assert "g.npz, adj_*: must be the parts of one CSR matrix" in refusal(tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", **{name: array for name, array in arrays.items() if name != "adj_shape"})
    assert "g.npz: has no array adj_shape" in refusal(tmp_path / "g.npz")


def test_the_real_photo_file_as_pyg_reads_it(data_root):
    from torch_geometric.io import read_npz

    file = next((data_root / "Amazon").rglob("*.npz"), None)
    if file is None:
        pytest.skip("no Amazon-Photo available")
    data, expected = read_graph(file, undirected=True), read_npz(str(file))
    assert torch.equal(data.x, expected.x)
    assert torch.equal(data.y, expected.y)
    loops = data.edge_index[0] == data.edge_index[1]
    assert torch.equal(data.edge_index[:, ~loops], expected.edge_index)


BROKEN_ARRAYS = {
    "no x": ({"x": None}, ": has no 'x' (found: edge_index, y, train_mask, timestamp)"),
    "late": ({"timestamp": np.array([1, 2, 2**63], np.uint64)}, ", timestamp[2]: must be a whole number below 2**63"),
    "endless": ({"timestamp": np.array([1, -np.inf, 2])}, ", timestamp[1]: must be a finite number (got -inf)"),
    "x shape": ({"x": np.zeros(3)}, ", x: must be numbers of shape [nodes, features] (got float64 [3])"),
    "no nodes": ({"x": np.zeros((0, 2))}, ", x: must be numbers of shape [nodes, features] (got float64 [0, 2])"),
    "NaN": ({"x": np.array([[1, 2], [3, np.nan], [5, 6]])}, ", x[1, 1]: must be a finite number (got nan)"),
    "overflow": ({"x": np.array([[1, 2], [3, 1e99], [5, 6]])}, ", x[1, 1]: must be a finite number (got 1e+99)"),
    "edge shape": (
        {"edge_index": np.zeros((5, 2), int)},
        ", edge_index: must be whole numbers of shape [2, edges] (got int64 [5, 2])",
    ),
    "edge type": (
        {"edge_index": np.zeros((2, 5))},
        ", edge_index: must be whole numbers of shape [2, edges] (got float64 [2, 5])",
    ),
    "high": ({"edge_index": np.array([[0, 1], [1, 3]])}, ", edge_index[1, 1]: must be a node, 0 to 2 (got 3)"),
    "low": ({"edge_index": np.array([[0, -1], [1, 2]])}, ", edge_index[0, 1]: must be a node, 0 to 2 (got -1)"),
    "labels": ({"y": np.zeros(4)}, ", y: must have shape [3], one entry for each node of x (got [4])"),
    "fraction": ({"y": np.array([0, 0.5, 1])}, ", y[1]: must be a whole number >= 0, or -1 for none (got 0.5)"),
    "complex": ({"y": np.zeros(3, dtype=complex)}, ", y: must be whole numbers or names (got complex128 [3])"),
    "mask type": ({"train_mask": np.array([0, 1, 0])}, ", train_mask: must be boolean (got int64)"),
    "training label": ({"train_mask": np.array([True, True, True])}, ", y[1]: must be given for a training node"),
    "no labels": ({"y": None}, ", y[0]: must be given for a training node"),
    "ids": ({"node_id": np.array([4, 5, 4])}, ", node_id[2]: must be unique (got 4, as in node_id[0])"),
    "id type": ({"node_id": np.zeros(3, dtype=bool)}, ", node_id: must be numbers or text (got bool [3])"),
    "time": ({"timestamp": np.zeros(3, dtype=bool)}, ", timestamp: must be numbers (got bool [3])"),
}


@pytest.mark.parametrize(("changes", "said"), BROKEN_ARRAYS.values(), ids=BROKEN_ARRAYS)
@pytest.mark.parametrize("name", ["graph.npz", "graph.pt"])
def test_arrays_that_do_not_fit_are_refused(tmp_path, name, changes, said):
    assert f"{name}{said}" in refusal(write_arrays(tmp_path / name, **changes))


@pytest.mark.parametrize(
    ("name", "which"),
    [("graph.npz", "node_id"), ("graph.npz", "class_names"), ("graph.npz", "y"), ("graph.pt", "node_id"),
     ("graph.pt", "class_names")],
)  # fmt: skip
def test_text_that_utf8_cannot_hold_is_refused(tmp_path, name, which):
    texts = ["a", "b\udc80", "c"]
    if name == "graph.npz":
        file = write_arrays(tmp_path / name, **{which: np.array(texts)})
    else:
        file = tmp_path / name
        torch.save(
            {"x": torch.eye(3), "edge_index": torch.tensor([[0], [1]]), "y": torch.arange(3), which: texts}, file
        )
    assert f"{name}, {which}[1]: must be text that UTF-8 can hold (got 'b\\udc80', with" in refusal(file)


@pytest.mark.parametrize("name", ["graph.npz", "graph.pt"])
def test_edges_out_of_range_are_dropped_on_request(tmp_path, name):
    data = read_graph(
        write_arrays(tmp_path / name, edge_index=np.array([[0, 1, -1], [1, 3, 2]])), drop_unknown_edges=True
    )
    assert data.edge_index.tolist() == [[0], [1]]
    assert data.dropped_edges == 2


@pytest.mark.parametrize("name", ["graph.npz", "graph.pt"])
@pytest.mark.parametrize("damage", [lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"junk" * 9])
def test_damaged_arrays_are_refused(tmp_path, name, damage):
    file = write_arrays(tmp_path / name)
    file.write_bytes(damage(file.read_bytes()))
    assert f"{name}: " in refusal(file)


def test_an_npz_that_is_none_is_refused(tmp_path):
    file = tmp_path / "graph.npz"
    with file.open("wb") as stream:
        np.save(stream, np.zeros(3))
    assert "graph.npz: must be a zip of arrays (got one array)" in refusal(file)
    assert "Object arrays cannot be loaded" in refusal(write_arrays(file, y=np.array([1, "a", None], dtype=object)))
    assert "graph.npz: must hold the edges too" in refusal(file, edges="edges.csv")


# PyG's files


def test_a_saved_data_comes_back(tmp_path):
    data = read_graph(write_graph(tmp_path))
    data.edge_note = torch.rand(3, 2)
    torch.save(data, tmp_path / "graph.pt")
    again = read_graph(tmp_path / "graph.pt")
    for name in ("x", "edge_index", "y", "train_mask", "timestamp"):
        assert torch.equal(again[name], data[name])
    assert again.node_id == data.node_id
    assert again.class_names == data.class_names
    torch.save((data.to_dict(), None, Data), tmp_path / "data.pt")  # as InMemoryDataset does
    assert torch.equal(read_graph(tmp_path / "data.pt").x, data.x)


def test_an_edge_index_of_pygs_own_class_is_not_taken_for_a_matrix(tmp_path):
    edges = EdgeIndex([[0, 1], [1, 2]], sparse_size=(3, 3))
    torch.save({"x": torch.eye(3), "edge_index": edges}, tmp_path / "graph.pt")
    assert read_graph(tmp_path / "graph.pt").edge_index.tolist() == [[0, 1], [1, 2]]


def test_sparse_and_half_features_become_dense_float32(tmp_path):
    for x in (torch.eye(3).to_sparse(), torch.eye(3, dtype=torch.bfloat16), torch.eye(3).half(), torch.eye(3).bool()):
        torch.save({"x": x, "edge_index": torch.tensor([[0], [1]])}, tmp_path / "graph.pt")
        assert torch.equal(read_graph(tmp_path / "graph.pt").x, torch.eye(3))


class Malicious:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return exec, (f"open({str(self.trace)!r}, 'w')",)


@pytest.mark.parametrize(
    "write", [torch.save, lambda content, file: file.write_bytes(pickle.dumps(content, protocol=2))]
)
def test_a_file_that_would_run_code_is_refused_and_not_run(tmp_path, write):
    trace, file = tmp_path / "trace", tmp_path / "graph.pt"
    write({"x": torch.eye(3), "edge_index": torch.tensor([[0], [1]]), "y": Malicious(trace)}, file)
    assert "graph.pt: must hold tensors and PyG's Data alone" in refusal(file)
    assert not trace.exists()


@pytest.mark.parametrize(
    "state", [b"}b.", b"K\x05b.", b"}X\x06\x00\x00\x00_storeK\x05sb."], ids=["empty", "number", "store"]
)
def test_a_forged_data_is_refused(tmp_path, state):
    with zipfile.ZipFile(tmp_path / "graph.pt", "w") as forged:
        forged.writestr("graph/data.pkl", b"\x80\x02ctorch_geometric.data.data\nData\n)\x81" + state)
        forged.writestr("graph/version", "3")
    assert "graph.pt: " in refusal(tmp_path / "graph.pt")


def test_other_contents_of_pt_are_refused(tmp_path):
    file = tmp_path / "graph.pt"
    torch.save(torch.eye(3), file)
    assert "graph.pt: must hold a PyG Data or a dict of tensors (got Tensor)" in refusal(file)
    torch.save({"x": [[1, 2]], "edge_index": torch.tensor([[0], [0]])}, file)
    assert "graph.pt, x: must be a tensor (got list)" in refusal(file)
    torch.save({"x": torch.eye(2), "node_id": [[1], 2]}, file)
    assert "graph.pt, node_id: must be numbers of one kind, or text (got a list of int, list)" in refusal(file)
    torch.save(HeteroData(), file)
    assert "graph.pt: must hold" in refusal(file)
    torch.save(np.float64(3), file)
    assert "must hold tensors and PyG's Data alone (got numpy" in refusal(file)


@FORMATS
@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_row_numbers_of_pandas_are_no_feature(tmp_path, ending, name):
    """Of nodes sorted by label they told the label, and other rows' numbers made every node odd."""
    said = refusal(write_graph(tmp_path, ending, nodes={name: [0, 1, 2, 3], **NODES}))
    assert f"nodes.{ending}: must have named columns alone (got '{name}', as pandas calls row numbers); write" in said
