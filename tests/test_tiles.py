from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnsafe import tiles
from gnnsafe.tiles import Tiles, by_target


@st.composite
def multigraphs(draw):
    """Edges of up to 9 nodes, some given several times, and how many nodes there are."""
    nodes = draw(st.integers(1, 9))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=30))
    return np.array(edges, dtype=draw(st.sampled_from([np.int32, np.int64]))).reshape(-1, 2).T, nodes


@pytest.fixture(params=["scipy's own", "public"], scope="module")
def kernels(request):
    """What scipy keeps to itself, and what is public, which takes its place should it go."""
    if request.param == "scipy's own":
        assert tiles.coo_matvec
        yield
        return
    with mock.patch.multiple(tiles, coo_matvec=None, coo_tocsr=None):
        yield


@given(multigraphs(), st.integers(1, 9))
def test_sums_over_neighbours_are_those_of_the_dense_matrix(kernels, graph, side):
    edge_index, nodes = graph
    dense = np.zeros((nodes, nodes))
    np.add.at(dense, (edge_index[1], edge_index[0]), 1)
    values = np.arange(1.0, nodes + 1) ** 2
    np.testing.assert_array_equal(Tiles(edge_index, nodes, side=side).sums(values), dense @ values)


@given(multigraphs(), st.integers(1, 9))
def test_edges_by_target_are_a_stable_sort(kernels, graph, rows):
    (source, target), nodes = graph
    starts, sources = by_target(np.stack([source, target]), nodes, rows=rows)
    order = np.argsort(target, kind="stable")
    np.testing.assert_array_equal(sources, source[order])
    np.testing.assert_array_equal(np.diff(starts), np.bincount(target, minlength=nodes))
    assert (starts[0], starts.dtype, sources.dtype) == (0, np.int32, np.int32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("side", [20, 1000])
def test_many_parts_blocks_and_threads(monkeypatch, threads, side):
    for name, size in (("BLOCK", 64), ("FEW", 1), ("FEW_TO_SUM", 1)):
        monkeypatch.setattr(tiles, name, size)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rng = np.random.default_rng(0)
    edge_index, values = rng.integers(100, size=(2, 5000)), rng.integers(50, size=100).astype(float)
    expected = np.bincount(edge_index[1], weights=values[edge_index[0]], minlength=100)
    summed = Tiles(edge_index, 100, side=side)
    assert (summed.rows, len(summed.parts)) == ((5, 8) if side == 20 else (1, 2))
    np.testing.assert_array_equal(summed.sums(values), expected)
    np.testing.assert_array_equal(summed.degrees(), np.bincount(edge_index[1], minlength=100))
    starts, sources = by_target(edge_index, 100, rows=side)
    np.testing.assert_array_equal(sources, edge_index[0][np.argsort(edge_index[1], kind="stable")])
    np.testing.assert_array_equal(np.diff(starts), np.bincount(edge_index[1], minlength=100))


def test_edges_that_do_not_lie_in_one_piece_are_read_as_they_are():
    pairs = np.array([[0, 2], [1, 2], [1, 0]])  # [edges, 2], whose transpose is a view
    assert Tiles(pairs.T, 3).sums(np.array([1.0, 10.0, 100.0])).tolist() == [10.0, 0.0, 11.0]
    assert by_target(pairs.T, 3)[1].tolist() == [1, 0, 1]
