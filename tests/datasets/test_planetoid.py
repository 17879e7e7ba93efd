"""Planetoid's pickles: as PyG reads them, and nothing in them is ever run."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.io import read_planetoid_data

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


class Malicious:
    def __init__(self, call: object, *given: object) -> None:
        self.call, self.given = call, given

    def __reduce__(self) -> tuple[object, ...]:
        return self.call, self.given


@pytest.mark.parametrize("part", [part for part in PICKLES if part not in ("x", "test.index")])  # x is not opened
def test_a_pickle_that_would_run_code_is_refused_and_not_run(tmp_path, part):
    trace = tmp_path / "trace"
    said = rf"ind.cora.{part} must hold .* \(got .*, which was not run\); download"
    for call, given in [(exec, (f"open({str(trace)!r}, 'w')",)), (os.mkdir, (str(trace),)), (eval, ("1",))]:
        with pytest.raises(InputError, match=said):
            read_planetoid(write(tmp_path, **{part: Malicious(call, *given)}), "cora")
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


SHARED = [0] * 10**6
BOMBS = {
    "one list many times": pickle.dumps(dict.fromkeys(range(40), SHARED), 4),
    "a far entry of the memo": b"\x80\x02]r" + (2**29).to_bytes(4, "little") + b".",
    "a long text": b"\x80\x04\x8d" + (2**40).to_bytes(8, "little") + b"abc.",
}


@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_a_small_file_takes_little_memory(tmp_path, content):
    with (
        at_most(2**30),
        pytest.raises(InputError, match=r"ind.cora.graph(: must take at most| must hold (arrays|lists))"),
    ):
        read_planetoid(write(tmp_path, graph=content), "cora")


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
