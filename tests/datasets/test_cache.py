from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gnnsafe import load_benchmark
from gnnsafe.datasets.cache import cache_folder, cached_graph
from gnnsafe.errors import DataNotFoundError


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "raw"
    path.write_text("first")
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gnnsafe"


class Builder:
    def __init__(self):
        self.calls = 0

    def __call__(self) -> Data:
        self.calls += 1
        x = torch.zeros(4, 5)
        x[1, 2] = 3.0
        return Data(x=x, edge_index=torch.tensor([[0], [3]]), y=torch.arange(4), train_mask=torch.arange(4) > 2)


def test_what_is_read_is_what_was_written(source, cache):
    build = Builder()
    first, second = (cached_graph("toy", [source], build) for _ in range(2))
    assert build.calls == 1
    assert first.keys() == second.keys()
    for key in first.keys():  # noqa: SIM118 - PyG's Data is no dict
        assert torch.equal(first[key], second[key])
        assert first[key].dtype == second[key].dtype
    assert [path.suffix for path in cache.iterdir()] == [".npz"]


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"PK" + b[::-1]])
def test_a_damaged_copy_is_rebuilt(source, cache, damage):
    build = Builder()
    expected = cached_graph("toy", [source], build)
    copy = next(cache.iterdir())
    copy.write_bytes(damage(copy.read_bytes()))
    assert torch.equal(cached_graph("toy", [source], build).x, expected.x)
    assert build.calls == 2
    assert torch.equal(cached_graph("toy", [source], build).x, expected.x)
    assert build.calls == 2  # mended


def test_a_flipped_bit_is_noticed_wherever_it_is(source, cache):
    build = Builder()
    expected = cached_graph("toy", [source], build)
    copy = next(cache.iterdir())
    whole = copy.read_bytes()
    places = np.random.default_rng(0).integers(8 * len(whole), size=100).tolist()
    for calls, place in enumerate(places, start=2):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        copy.write_bytes(content)
        graph = cached_graph("toy", [source], build)
        assert build.calls == calls, place
        assert torch.equal(graph.x, expected.x)
        assert copy.read_bytes() == whole  # mended


def test_a_user_without_a_home_has_no_cache(source, monkeypatch):
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # a user whom no file names
    build = Builder()
    for _ in range(2):
        assert cached_graph("toy", [source], build).num_nodes == 4
    assert build.calls == 2
    with pytest.raises(
        DataNotFoundError, match=r"a download \(there is no folder for it: set HOME or XDG_CACHE_HOME\)"
    ):
        load_benchmark("citeseer", shift="label")


def test_a_changed_source_is_read_again(source, cache):
    build = Builder()
    cached_graph("toy", [source], build)
    source.write_text("second, longer")
    cached_graph("toy", [source], build)
    assert build.calls == 2


def test_a_folder_that_cannot_be_written_costs_only_time(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cached_graph("toy", [source], Builder()).num_nodes == 4


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "gnnsafe"
    for unset in ("", "relative/path"):  # the specification: a relative path is to be ignored
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_folder() == Path.home() / ".cache" / "gnnsafe"
