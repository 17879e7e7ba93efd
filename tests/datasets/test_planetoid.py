"""Planetoid's pickles: as PyG reads them, and nothing in them is ever run."""

from __future__ import annotations

import contextlib
import os
import pickle
import pickletools
import resource
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.io import read_planetoid_data

from gnnsafe.datasets.pickled import CODES, unpickled
from gnnsafe.datasets.planetoid import PICKLES, read_planetoid
from gnnsafe.errors import InputError


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["Cora", "PubMed"])
def test_the_real_files_as_pyg_reads_them(data_root, name):
    folder = data_root / "Planetoid" / name / "raw"
    data, expected = read_planetoid(folder, name.lower()), read_planetoid_data(str(folder), name.lower()).coalesce()
    for key in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(data[key], expected[key]), key
        assert data[key].dtype == expected[key].dtype, key


def write(folder: Path, name: str = "cora", **changes: object) -> Path:
    """Six nodes: 0 and 1 train, 2 known, 3 to 5 test, of which `citeseer` lacks 4."""
    test = [5, 3] if name == "citeseer" else [5, 3, 4]
    rows = sp.csr_matrix(np.arange(1.0, 7).reshape(3, 2).astype(np.float32))
    one_hot = np.eye(3, dtype=np.int32)
    content = {
        "x": rows[:2], "allx": rows, "tx": 10 * rows[: len(test)], "y": one_hot[:2], "ally": one_hot,
        "ty": one_hot[: len(test)], "graph": defaultdict(list, {0: [1, 1, 0], 1: [0], 5: [2]}), **changes,
    }  # fmt: skip
    for part, value in content.items():
        raw = value if isinstance(value, bytes) else pickle.dumps(value, protocol=4)
        (folder / f"ind.{name}.{part}").write_bytes(raw)
    (folder / f"ind.{name}.test.index").write_text("".join(f"{index}\n" for index in test))
    return folder


def test_small_files_by_hand(tmp_path):
    data = read_planetoid(write(tmp_path), "cora")
    # tx is in order of the index file: 5, 3, 4
    assert data.x.tolist() == [[1, 2], [3, 4], [5, 6], [30, 40], [50, 60], [10, 20]]
    assert data.y.tolist() == [0, 1, 2, 1, 2, 0]
    assert data.edge_index.tolist() == [[0, 1, 5], [1, 0, 2]]
    assert data.train_mask.tolist() == [True, True, False, False, False, False]
    assert data.test_mask.tolist() == [False, False, False, True, True, True]
    left_out = read_planetoid(write(tmp_path, "citeseer"), "citeseer")
    assert left_out.x.tolist() == [[1, 2], [3, 4], [5, 6], [30, 40], [0, 0], [10, 20]]
    assert left_out.test_mask.tolist() == [False, False, False, True, False, True]


class Reduced:
    """Pickled as what it is given: the call, its arguments, and what may follow."""

    def __init__(self, *given: object) -> None:
        self.given = given

    def __reduce__(self) -> tuple[object, ...]:
        return self.given


@pytest.mark.parametrize("part", [part for part in PICKLES if part not in ("x", "test.index")])  # x is not opened
def test_a_pickle_that_would_run_code_is_refused_and_not_run(tmp_path, part):
    trace = tmp_path / "trace"
    said = rf"ind.cora.{part} must hold .* \(got .*, which was not run\); download"
    for call, given in [(exec, (f"open({str(trace)!r}, 'w')",)), (os.mkdir, (str(trace),)), (eval, ("1",))]:
        with pytest.raises(InputError, match=said):
            read_planetoid(write(tmp_path, **{part: Reduced(call, given)}), "cora")
        assert not trace.exists()


BROKEN = {
    "object array": ("ally", np.array([[1, "a"]], dtype=object)),
    "no matrix": ("allx", [1, 2]),
    "one dimension": ("ally", np.zeros(3)),
    "text": ("ty", np.array([["a", "b", "c"]])),
    "shape": ("tx", sp.csr_matrix(np.eye(3))),
    "node": ("graph", {0: [6]}),
    "negative": ("graph", {-1: [0]}),
    "nested": ("graph", {0: [[1]]}),
    "no graph": ("graph", [0, 1]),
    "cut short": ("allx", pickle.dumps(sp.csr_matrix(np.eye(3)), protocol=4)[:-40]),
    "junk": ("graph", b"junk"),
    "NaN class": ("ally", np.full((3, 3), np.nan)),
    "NaN feature": ("tx", sp.csr_matrix(np.full((3, 2), np.nan))),
    "infinite": ("allx", np.full((3, 2), 1e39)),
    "deep": ("graph", b"\x80\x02" + b"]" * 10_001 + b"a" * 10_000 + b"."),
}


@pytest.mark.parametrize(("part", "content"), BROKEN.values(), ids=BROKEN)
def test_files_that_do_not_fit_are_refused(tmp_path, part, content):
    with pytest.raises(InputError, match=rf"ind.cora.{part} must .*; ") as error:
        read_planetoid(write(tmp_path, **{part: content}), "cora")
    assert "\n" not in str(error.value)


def pairs(kind: type, leaf: object, levels: int) -> object:
    """A pair, both of which are one pair, and so on: small in a pickle, 2**levels for who walks through it."""
    for _ in range(levels):
        leaf = kind([leaf, leaf])
    return leaf


def array(shape: object = (3, 2), code: object = "f4", order: object = "<") -> Reduced:
    """One as numpy pickles it, of such parts."""
    dtype = Reduced(np.dtype, (code, False, True), (3, order, None, None, None, -1, -1, 0))
    return Reduced(np.zeros(1).__reduce__()[0], (np.ndarray, (0,), b"b"), (1, shape, dtype, False, bytes(24)))


def matrix(shape: object) -> Reduced:
    parts = {"data": array((6,)), "indices": array((6,), "i4"), "indptr": array((6,), "i4"), "_shape": shape}
    return Reduced(sp.csr_matrix, (), parts)


SHARED, LONG, WIDE = [0] * 10**6, (0,) * 10**6, dict.fromkeys(range(10**5), 0)
LISTS, KEY = pairs(list, 0, 27), pairs(tuple, 0, 60)
COUNTED = [code for code in pickletools.opcodes if code.name == "FRAME" or (code.arg and code.arg.n < -1)]
BOMBS = {
    "one list many times": ("graph", dict.fromkeys(range(40), SHARED)),
    "a list copied many times": ("graph", [SHARED, *(Reduced(list, (SHARED,)) for _ in range(100))]),
    "a dict copied many times": ("graph", [WIDE, *(Reduced(defaultdict, (list, WIDE)) for _ in range(100))]),
    "arguments kept many times": ("graph", [LONG, *(Reduced(np.dtype, LONG) for _ in range(100))]),
    "a far entry of the memo": ("graph", b"\x80\x02]r" + (2**29).to_bytes(4, "little") + b"."),
    "a key of many tuples": ("graph", pickle.dumps(Reduced(defaultdict, (list,), None, None, iter([(KEY, [])])), 4)),
    "a deep key": ("graph", b"\x80\x02})" + b"\x85" * 10**6 + b"Ns."),
    "a deep key among others": ("graph", b"\x80\x02}()" + b"\x85" * 10**6 + b"Nu."),
    "shape of a matrix": ("allx", matrix(LISTS)),
    "shape of an array": ("allx", array(LISTS)),
    "type of an array": ("allx", array(code=LISTS)),
    "byte order of an array": ("allx", array(order=LISTS)),
    **{
        f"the length of {code.name}": ("graph", code.code.encode("latin1") + (400 * 2**20).to_bytes(8, "little") + b".")
        for code in COUNTED
    },
}


@pytest.mark.parametrize(("part", "content"), BOMBS.values(), ids=BOMBS)
def test_a_small_file_takes_little_memory(tmp_path, part, content):
    write(tmp_path, **{part: content})
    words = rf"ind.cora.{part}(: must take at most| must hold (arrays|lists|the parts))"
    with at_most(2**28), pytest.raises(InputError, match=words) as error:
        read_planetoid(tmp_path, "cora")
    assert "MemoryError" not in str(error.value)


@pytest.mark.parametrize("columns", [0, 1])
def test_a_test_node_far_away_takes_little_memory(tmp_path, columns):
    empty = {part: np.zeros((3, columns)) for part in ("allx", "tx", "ally", "ty")}
    write(tmp_path, **empty)
    (tmp_path / "ind.cora.test.index").write_text("3 4 100000000")
    with at_most(2**28), pytest.raises(InputError, match=r"ind.cora.\w+(: must take at most| must have a column)"):
        read_planetoid(tmp_path, "cora")


def test_no_other_code_is_known(tmp_path):
    """Of all that a pickle can be made of."""
    for code in {code.name: code for code in pickletools.opcodes if code.name not in CODES}.values():
        (tmp_path / "file").write_bytes(b"\x80\x04" + code.code.encode("latin1"))
        with pytest.raises(InputError, match="got a code that these do not need"):
            unpickled(tmp_path / "file")


@contextlib.contextmanager
def at_most(nbytes):
    """No more memory than is taken now, and `nbytes`."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_flipped_bytes_never_end_in_another_error(tmp_path):
    """Damaged files: refused in one line, or a graph that fits together."""
    whole = {file: file.read_bytes() for file in write(tmp_path).iterdir()}
    rng = np.random.default_rng(0)
    refused = []
    for _ in range(200):
        file = list(whole)[rng.integers(len(whole))]
        raw = bytearray(whole[file])
        for place in rng.integers(len(raw), size=rng.integers(1, 4)).tolist():
            raw[place] = int(rng.integers(256))
        file.write_bytes(raw)
        with contextlib.suppress(InputError):
            refused.append(file)
            data = read_planetoid(tmp_path, "cora")
            refused.pop()
            assert data.num_nodes == len(data.y) == len(data.test_mask)
            assert 0 <= data.edge_index.min() <= data.edge_index.max() < data.num_nodes
        file.write_bytes(whole[file])
    assert 50 < len(refused) < 200
