"""What is read is what the file says: no value changed on the way, no two ids taken for one, no memory for nothing."""

from __future__ import annotations

import os
import re
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from pyarrow import csv, parquet

import gnnsafe
from gnnsafe import read_graph
from gnnsafe.datasets.reading import limits
from gnnsafe.errors import GraphFileError, ModelWarning, PrecisionWarning
from gnnsafe.report.decisions import write_table


def tables(folder: Path, nodes: bytes | dict, edges: bytes | dict) -> Path:
    for name, content in {"nodes": nodes, "edges": edges}.items():
        if isinstance(content, bytes):
            (folder / f"{name}.csv").write_bytes(content)
        else:
            parquet.write_table(pa.table(content), folder / f"{name}.parquet")
    return folder


def refusal(path: Path) -> str:
    with pytest.raises(GraphFileError) as error:
        read_graph(path)
    line = str(error.value)
    assert "\n" not in line
    assert "; " in line, "no remedy"
    return line


EDGE = b"source,target\n0,1\n"


# Numbers


def test_hexadecimal_text_is_no_number(tmp_path):
    nodes = b"id,a,b,c\n0,0x1F,1,3\n1,0x2,2,0X4\n"
    data = read_graph(tables(tmp_path, b"id,a,b\n0,0x1F,1\n1,0x2,2\n", EDGE))
    assert data.feature_names == ["b"]
    assert data.ignored_columns == ["a"]
    assert "column 'c', row 2: must be a finite number (got '0X4')" in refusal(tables(tmp_path, nodes, EDGE))
    line = refusal(tables(tmp_path, b"id,a,timestamp\n0,1,0x10\n1,2,3\n", EDGE))
    assert "column 'timestamp', row 1: must be a number or a date (got text, '0x10')" in line


@pytest.mark.parametrize("written", ["[1,,2]", "1;;2", "[,1,2]", "1,2,", "[1, ,2]"])
def test_a_gap_in_a_list_is_seen(tmp_path, written):
    nodes = f'id,features\n0,"[1,2,3]"\n1,"{written}"\n'.encode()
    assert "column 'features', row 2: must be a finite number (got nothing)" in refusal(tables(tmp_path, nodes, EDGE))


def test_a_column_of_text_with_a_number_in_it_says_so(tmp_path):
    nodes = b"id,a,title\n0,1,Dune\n1,1,Emma\n2,1,1984\n"
    line = refusal(tables(tmp_path, nodes, EDGE))
    assert "column 'title', row 1: must be a finite number (got 'Dune'), as 1 of its 3 values are, the first in" in line
    assert "row 3; correct the value, or remove the column if it is text" in line


@pytest.mark.parametrize("end", [b"\r", b"\n", b"\r\n"])
def test_lines_may_end_in_any_usual_way(tmp_path, end):
    data = read_graph(tables(tmp_path, end.join([b"id,a", b"0,1", b"1,2", b""]), end.join(EDGE.split(b"\n"))))
    assert data.x.tolist() == [[1], [2]]
    line = refusal(tables(tmp_path, end.join([b"id,a,b", b"0,1,ok", b"1,2,Zo\xeb", b""]), EDGE))
    assert "column 'b', row 2: must be UTF-8 (got byte 0xeb)" in line


# Ids


@pytest.mark.parametrize("end", ["01", "0x1", "-0", "+1", "1.0", "1e0"])
@pytest.mark.parametrize("whole", [True, False])
def test_an_id_written_in_another_way_is_another_id(tmp_path, end, whole):
    nodes = b"id,a\n0,1\n1,1\n" if whole else b"id,a\n0,1\n1,1\nx,1\n"
    line = refusal(tables(tmp_path, nodes, f"source,target\n0,{end}\n".encode()))
    assert f"column 'target', row 1: must be the id of a node in nodes.csv (got '{end}'" in line
    own = read_graph(tables(tmp_path, f"id,a\n0,1\n1,1\n{end},1\n".encode(), f"source,target\n0,{end}\n".encode()))
    assert own.node_id == ["0", "1", end]
    assert own.edge_index.tolist() == [[0], [2]]


@pytest.mark.parametrize(
    ("ids", "ends"),
    [
        (pa.array([0.5, 0.25], pa.float32()), pa.array([0.5 + 1e-12, 0.25])),
        (pa.array([2**53, 1]), pa.array([2.0**53 + 2, 1.0])),
        (pa.array([2**53 + 2, 1]), pa.array([2.0**53 + 2, 1.0])),  # it may have been 2**53 + 1
        (pa.array([2**24 + 2, 1]), pa.array([2.0**24 + 2, 1.0], pa.float32())),
        (pa.array([1, 2]), pa.array([1.5, 2.0])),
        (pa.array([1, 2]).cast(pa.decimal128(21, 1)), pa.array([1.04, 2.0])),
        (pa.array([0, 10], pa.timestamp("s")), pa.array([1, 10_000], pa.timestamp("ms"))),
        (pa.array([0, 1], pa.date32()), pa.array([5, 86400], pa.timestamp("s"))),
    ],
    ids=str,
)
def test_ids_that_are_almost_alike_do_not_meet(tmp_path, ids, ends):
    tables(tmp_path, {"id": ids, "a": [1, 1]}, {"source": ends, "target": ids})
    assert "column 'source', row 1: must be the id of a node in nodes.parquet" in refusal(tmp_path)


@pytest.mark.parametrize("kind", [pa.time64("ns"), pa.time32("ms"), pa.timestamp("ns"), pa.duration("ns"), pa.bool_()])
def test_ids_that_python_cannot_hold_exactly_are_refused(tmp_path, kind):
    ids = pa.array([0, 1], pa.int32() if kind == pa.time32("ms") else pa.int64()).cast(kind)
    tables(tmp_path, {"id": ids, "a": [1, 1]}, {"source": ids, "target": ids})
    assert f"column 'id': must be numbers or text (got {kind})" in refusal(tmp_path)


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([2**63, 2**64 - 1], pa.uint64()),
        pa.array([2**63 - 1, -(2**63)]),
        pa.array([0.1, 1e300]),
        pa.array(["01", "=1"]),
        pa.array([date(2020, 1, 1), date(1969, 7, 20)]),
        pa.array([datetime(2020, 1, 1, tzinfo=UTC), datetime(1969, 7, 20, 1, 2, 3, 4, UTC)]),
    ],
    ids=lambda ids: str(ids.type),
)
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_ids_go_out_as_they_came_in(tmp_path, ids, ending):
    data = read_graph(tables(tmp_path, {"id": ids, "a": [1, 1]}, {"source": ids, "target": ids}))
    assert data.edge_index.tolist() == [[0, 1], [0, 1]]
    zeros = torch.zeros(2)
    decided = gnnsafe.Decisions(data.node_id, zeros, zeros, zeros > 0, None, None)
    write_table(tmp_path / f"out.{ending}", decided.to_arrow().select(["id"]))
    csv.write_csv(pa.table({"id": ids}), tmp_path / "as_they_came.csv")
    if ending == "parquet":
        assert parquet.read_table(tmp_path / "out.parquet")["id"].to_pylist() == ids.to_pylist()
    else:
        assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "as_they_came.csv").read_bytes()


def test_ids_of_pt_keep_their_kind(tmp_path):
    file = tmp_path / "graph.pt"
    graph = {"x": torch.eye(2), "edge_index": torch.tensor([[0], [1]])}
    torch.save({**graph, "node_id": [2**63, 1]}, file)
    assert read_graph(file).node_id == [2**63, 1]
    torch.save({**graph, "node_id": [1, "1"]}, file)
    assert "node_id: must be numbers of one kind, or text (got a list of int, str)" in refusal(file)
    torch.save({**graph, "node_id": [2**63, -1]}, file)
    assert "cannot be read as .pt (" in refusal(file)


# Times


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([2**63 - 1, -5]), [2**63 - 1, -5]),
        (pa.array([7, 2**62], pa.uint64()), [7, 2**62]),
        (pa.array([0.25, -1e300]), [0.25, -1e300]),
        (pa.array([1, -1], pa.date32()), [86400, -86400]),
        (pa.array([1, -1], pa.timestamp("s", "+02:00")), [1, -1]),
        (pa.array([1500, -500], pa.timestamp("ms")), [1.5, -0.5]),
        (pa.array([1_700_000_000_000_001_000, 0], pa.timestamp("ns")), [1_700_000_000.000001, 0.0]),
        (pa.array(["2020-01-01T00:00:01+02:00", "2020-01-01 00:00Z"]), [1577829601, 1577836800]),
        (pa.array(["1969-12-31 23:59:59.5", "1970-01-01"]), [-0.5, 0.0]),
        (pa.array(["1700000000000000001", "+3"]), [1_700_000_000_000_000_001, 3]),
        (pa.array(["1e3", ".5"]), [1000.0, 0.5]),
    ],
    ids=str,
)
def test_times_are_read_exactly(tmp_path, column, expected):
    data = read_graph(
        tables(tmp_path, {"id": [0, 1], "a": [1, 1], "timestamp": column}, {"source": [0], "target": [1]})
    )
    assert data.timestamp.tolist() == expected
    assert data.timestamp.dtype == (torch.int64 if isinstance(expected[0], int) else torch.float64)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([7, 2**63], pa.uint64()), "must be a whole number below 2**63 (got 9223372036854775808)"),
        (pa.array([7, np.inf]), "must be a finite number (got inf)"),
        (pa.array([0, 1], pa.timestamp("ns")), "must be a time in whole microseconds (got 1970-01-01 00:00:00.00000"),
        (pa.array([0, 10**18], pa.timestamp("ms")), "must be a time in whole microseconds"),
        (pa.array(["1", "9223372036854775808"]), "must be a whole number below 2**63 (got '9223372036854775808')"),
        (pa.array(["2020-01-01 00:00Z", "2020-01-01 00:00"]), "must be a date, as row 1 is (got '2020-01-01 00:00')"),
        (pa.array(["2020-02-01", "2020-02-30"]), "must be a date, as row 1 is (got '2020-02-30')"),
        (pa.array(["1", "Infinity"]), "must be a finite number"),
    ],
    ids=str,
)
def test_times_that_cannot_be_held_are_refused(tmp_path, column, said):
    tables(tmp_path, {"id": [0, 1], "a": [1, 1], "timestamp": column}, {"source": [0], "target": [1]})
    line = refusal(tmp_path)
    assert f"column 'timestamp', row 2: {said}" in line or ("Infinity" in str(column) and said in line)


# Arrays


def benchmark(**changes: np.ndarray) -> dict[str, np.ndarray]:
    matrix = sp.csr_array(np.eye(3))
    parts = {f"{name}_{part}": np.asarray(getattr(matrix, part)) for name in ("adj", "attr")
             for part in ("data", "indices", "indptr", "shape")}  # fmt: skip
    return {**parts, **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"adj_indices": np.array([0, 1.5, 2])}, "adj_*: must be the parts of one CSR matrix (indices"),
        ({"adj_indptr": np.array([0.0, 1, 2, 3])}, "adj_*: must be the parts of one CSR matrix (indptr"),
        ({"attr_data": np.ones(3, complex)}, "attr_*: must be the parts of one CSR matrix (data of type complex128)"),
        ({"attr_data": np.ones(3, "M8[s]")}, "attr_*: must be the parts of one CSR matrix (data of type datetime64"),
        ({"attr_shape": np.array([3, -3])}, "attr_*: must be the parts of one CSR matrix (shape [3, -3])"),
        ({"attr_shape": np.array([3, 2**30])}, "attr_*: must take at most 512 MiB of memory, or 400 times the file's"),
    ],
)  # fmt: skip
def test_a_gnn_benchmark_of_other_numbers_is_refused(tmp_path, changes, said):
    np.savez(tmp_path / "g.npz", **benchmark(**changes))
    assert f"g.npz, {said}" in refusal(tmp_path / "g.npz")


def test_arrays_of_other_names_are_listed(tmp_path):
    np.savez(tmp_path / "g.npz", features=np.eye(2), edges=np.zeros((2, 1), int))
    line = refusal(tmp_path / "g.npz")
    assert "g.npz: has no 'x' (found: features, edges); name the arrays x and edge_index, and" in line
    assert "y, train_mask, val_mask, test_mask, timestamp, node_id, class_names; or as the gnn-benchmark" in line


@pytest.mark.parametrize("ending", ["npz", "pt"])
@pytest.mark.parametrize("given", ["train_mask", "val_mask", "test_mask"])
def test_masks_are_all_three_or_none(tmp_path, ending, given):
    graph = {"x": np.eye(2), "edge_index": np.array([[0], [1]]), "y": np.array([0, 1]), given: np.array([True, False])}
    if ending == "npz":
        np.savez(tmp_path / "g.npz", **graph)
    else:
        torch.save({name: torch.from_numpy(array) for name, array in graph.items()}, tmp_path / "g.pt")
    data = read_graph(tmp_path / f"g.{ending}")
    for name in ("train_mask", "val_mask", "test_mask"):
        assert data[name].tolist() == [name == given, False]


def test_a_header_that_tells_another_size_is_refused(tmp_path):
    """Numpy would read the rows that it is told of, and leave the zip's checksum uncompared."""
    np.savez(tmp_path / "g.npz", x=np.eye(120), edge_index=np.array([[0], [1]]))
    raw = (tmp_path / "g.npz").read_bytes()
    (tmp_path / "g.npz").write_bytes(raw.replace(b"(120, 120)", b"(110, 120)"))
    assert "g.npz, x: must hold the [110, 120] float64 that it says" in refusal(tmp_path / "g.npz")


# Memory safety, and memory for nothing


def sparse(layout: torch.layout) -> torch.Tensor:
    eye = torch.eye(4)
    if layout in (torch.sparse_bsr, torch.sparse_bsc):
        return eye.to_sparse(layout=layout, blocksize=(2, 2))
    return eye.to_sparse(layout=layout)


def damaged(x: torch.Tensor, place: int, value: int) -> torch.Tensor:
    """The same tensor, one of its indices (or pointers) changed behind torch's back."""
    if x.layout == torch.sparse_coo:
        parts = [x._indices()[0], x._indices()[1]]
    elif x.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [x.crow_indices(), x.col_indices()]
    else:
        parts = [x.ccol_indices(), x.row_indices()]
    parts[place][1] = value
    return x


LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_sparse_features_are_checked_before_they_are_used(tmp_path, layout):
    file, edges = tmp_path / "g.pt", torch.tensor([[0], [1]])
    torch.save({"x": sparse(layout), "edge_index": edges}, file)
    assert torch.equal(read_graph(file).x, torch.eye(4))
    for place in (0, 1):
        for value in (-100_000, -1, 4, 2**40):
            torch.save({"x": damaged(sparse(layout), place, value), "edge_index": edges}, file)
            assert "g.pt: cannot be read as .pt (" in refusal(file)


@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_no_plain_ones_are_refused(tmp_path):
    file, edges = tmp_path / "g.pt", torch.tensor([[0], [1]])
    odd = {
        "meta": torch.empty(2, 2, device="meta"),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "quantised": torch.quantize_per_tensor(torch.eye(2), 0.1, 0, torch.qint8),
        "complex": torch.eye(2, dtype=torch.complex64),
    }
    for kind, x in odd.items():
        torch.save({"x": x, "edge_index": edges}, file)
        line = refusal(file)
        assert f"one that is {kind}" in line or "got complex64 [2, 2]" in line or "PyG's Data alone" in line
    torch.save({"x": torch.arange(4.0).as_strided((3, 2), (1, 1)), "edge_index": edges}, file)
    assert read_graph(file).x.tolist() == [[0, 1], [1, 2], [2, 3]]  # overlapping, and right


def test_deep_structures_are_refused_in_one_line(tmp_path):
    raw = b"\x80\x02" + b"]" * 10_001 + b"a" * 10_000 + b"."
    for content in (raw, b"\x80\x02}X\x01\x00\x00\x00x" + raw[2:-1] + b"s."):
        with zipfile.ZipFile(tmp_path / "g.pt", "w") as forged:
            forged.writestr("g/data.pkl", content)
            forged.writestr("g/version", "3")
        assert "g.pt" in refusal(tmp_path / "g.pt")


def bomb_expanded(file: Path) -> None:
    torch.save({"x": torch.zeros(1).expand(100_000, 13_000), "edge_index": torch.tensor([[0], [1]])}, file)


def bomb_zip(file: Path) -> None:
    np.savez_compressed(file, x=np.zeros((10_000, 6_000), bool), edge_index=np.array([[0], [1]]))


def peak_memory() -> int:
    """The most memory in bytes that this process has held since the peak was last reset."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the peak can be reset on Linux alone")
@pytest.mark.parametrize(("name", "make", "free"), [("g.pt", bomb_expanded, 2**29), ("g.npz", bomb_zip, 2**26)])
def test_a_small_file_takes_little_memory(tmp_path, monkeypatch, name, make, free):
    make(tmp_path / name)
    monkeypatch.setattr(limits, "FREE", free)
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_memory()
    said = f"must take at most {free // 2**20} MiB of memory, or 400 times the file's"
    assert said in refusal(tmp_path / name)
    assert peak_memory() - before < 20 * 2**20


def test_repeated_numbers_of_parquet_count_as_what_they_will_take(tmp_path, monkeypatch):
    ones = pa.array(np.ones(20_000, np.float32))
    tables(tmp_path, {"id": np.arange(20_000), **{f"a{i}": ones for i in range(50)}}, {"source": [0], "target": [1]})
    assert read_graph(tmp_path).x.shape == (20_000, 50)
    monkeypatch.setattr(limits, "FREE", 10**6)
    monkeypatch.setattr(limits, "EXPANSION", 10)
    assert "nodes.parquet: must take at most 0 MiB of memory, or 10 times the file's" in refusal(tmp_path)


def test_lists_of_features_are_read_in_little_more_than_their_own_memory(tmp_path):
    rows, width = 60_000, 128
    x = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), width)
    tables(tmp_path, {"id": np.arange(rows), "features": lists}, {"source": [0], "target": [1]})
    pool = pa.default_memory_pool()
    pool.release_unused()
    before, peak = pool.bytes_allocated(), pool.max_memory()
    data = read_graph(tmp_path)
    np.testing.assert_array_equal(data.x, x)
    assert max(pool.max_memory() - peak, pool.bytes_allocated() - before) < x.nbytes  # beside the matrix itself


# Places


def test_paths_that_lead_nowhere(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (loop, loop / "nodes.csv", tmp_path / ("a" * 5000), tmp_path / "a\0b"):
        assert refusal(path).count(";") >= 1
    os.mkfifo(tmp_path / "nodes.csv")
    assert "must hold nodes.parquet or nodes.csv (found neither)" in refusal(tmp_path)


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_a_column_that_float32_cannot_tell_apart_is_said(tmp_path, ending):
    """Seconds since 1970 are 1.7e9, where float32 has steps of 128."""
    seconds, edge = [1_700_000_000 + 60 * minute for minute in range(4)], {"source": ["a"], "target": ["b"]}
    if ending == "npz":
        file = tmp_path / "graph.npz"
        np.savez(file, x=np.array([[1, at] for at in seconds], dtype=np.float64), edge_index=np.array([[0], [1]]))
    elif ending == "parquet":
        file = tables(tmp_path, {"id": list("abcd"), "age": [1.0, 2.0, 3.0, 4.0], "at": seconds}, edge)
    else:
        rows = "".join(f"{name},1,{at}\n" for name, at in zip("abcd", seconds, strict=True))
        file = tables(tmp_path, f"id,age,at\n{rows}".encode(), b"source,target\na,b\n")
    with pytest.warns(PrecisionWarning, match=r"column '(at|x\[:, 1\])': varies from 1700000000 to 1700000180 only"):
        read_graph(file)


@pytest.mark.parametrize("kind", ["csv", "npz", "pt"])
def test_weights_of_edges_are_not_left_out_without_a_word(tmp_path, kind):
    arrays = {"x": np.eye(2, dtype=np.float32), "edge_index": np.array([[0], [1]]), "edge_weight": np.array([0.5])}
    if kind == "csv":
        path = tmp_path
        (path / "nodes.csv").write_text("id,a\n0,1\n1,2\n")
        (path / "edges.csv").write_text("source,target, Weight,kind\n0,1,0.5,cites\n")
    else:
        path = tmp_path / f"graph.{kind}"
        np.savez(path, **arrays) if kind == "npz" else torch.save(
            {name: torch.from_numpy(array) for name, array in arrays.items()}, path
        )
    with pytest.warns(ModelWarning, match=r", (Weight|edge_weight): is not read, and all edges count alike") as said:
        assert read_graph(path).edge_index.tolist() == [[0], [1]]
    assert len(said) == 1


def test_what_says_that_it_has_no_weights_has_none(tmp_path, recwarn):
    torch.save({"x": torch.eye(2), "edge_index": torch.tensor([[0], [1]]), "edge_weight": None}, tmp_path / "graph.pt")
    assert read_graph(tmp_path / "graph.pt").edge_index.tolist() == [[0], [1]]
    assert not recwarn.list


def test_a_pt_with_adj_t_alone(tmp_path):
    path = tmp_path / "graph.pt"
    adj_t = torch.sparse_coo_tensor([[1, 2], [0, 0]], [1.0, 1.0], (3, 3), check_invariants=True)  # from 0 to 1 and 2
    for matrix in (adj_t, adj_t.to_sparse_csr(), adj_t.to_sparse_csc()):
        torch.save({"x": torch.eye(3), "adj_t": matrix}, path)
        assert read_graph(path).edge_index.tolist() == [[0, 0], [1, 2]]
    torch.save({"x": torch.eye(3), "adj_t": 2 * adj_t}, path)
    with pytest.warns(ModelWarning, match="edge_weight: is not read"):
        read_graph(path)
    outside = torch.sparse_coo_tensor([[0], [10**6]], [1.0], (3, 3), check_invariants=False)
    for other in (outside, torch.eye(3), "adj"):
        torch.save({"x": torch.eye(3), "adj_t": other}, path)
        with pytest.raises(GraphFileError, match=r"graph.pt: cannot be read as .pt \('data.adj_t' must"):
            read_graph(path)


def test_the_schema_of_many_columns_is_made_once(tmp_path, monkeypatch):
    """Made for each of 40,000 columns, it took minutes."""
    columns = {f"c{column}": [1.0, 2.0] for column in range(50)}
    parquet.write_table(pa.table({"id": [0, 1], **columns}), tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    made, asked = parquet.ParquetFile.schema_arrow.fget, []
    monkeypatch.setattr(parquet.ParquetFile, "schema_arrow", property(lambda file: asked.append(1) or made(file)))
    assert read_graph(tmp_path).x.shape == (2, 50)
    assert len(asked) < 10
