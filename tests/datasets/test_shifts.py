from __future__ import annotations

from functools import partial

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gnnsafe.datasets import shifts
from gnnsafe.datasets.shifts import blocks


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.floats(0, 1), st.floats(0, 1), st.integers(0, 99))
def test_block_model_draws_simple_undirected_edges(sizes, inside, across, seed):
    probability = np.full((len(sizes), len(sizes)), across)
    np.fill_diagonal(probability, inside)
    low, high = shifts.block_model(np.array(sizes), probability, np.random.default_rng(seed))
    assert (low < high).all()  # no self-loop, each pair one way
    assert len(set(zip(low.tolist(), high.tolist(), strict=True))) == len(low)
    assert high.max(initial=0) < sum(sizes)


def test_block_model_with_certain_edges_is_known():
    sizes = np.array([3, 2, 4])
    edges = shifts.block_model(sizes, np.eye(3), np.random.default_rng(0))
    cliques = nx.disjoint_union_all(nx.complete_graph(n) for n in sizes)
    assert sorted(map(tuple, edges.T.tolist())) == sorted(cliques.edges)
    edges = shifts.block_model(sizes, 1 - np.eye(3), np.random.default_rng(0))
    assert sorted(map(tuple, edges.T.tolist())) == sorted(nx.complete_multipartite_graph(*sizes).edges)


@pytest.mark.parametrize(("sizes", "inside", "across"), [([60, 60], 0.1, 0.02), ([40, 50, 30], 0.02, 0.2)])
def test_block_model_has_the_right_probabilities(sizes, inside, across):
    probability = np.full((len(sizes), len(sizes)), across)
    np.fill_diagonal(probability, inside)
    block = np.repeat(np.arange(len(sizes)), sizes)
    counts = np.zeros((len(block), len(block)))
    draws = 400
    for seed in range(draws):
        low, high = shifts.block_model(np.array(sizes), probability, np.random.default_rng(seed))
        counts[low, high] += 1
    upper = np.triu(np.ones_like(counts), 1).astype(bool)
    expected = probability[block[:, None], block]
    # every single pair: within six standard deviations of its probability
    deviation = np.abs(counts / draws - expected) / np.sqrt(expected * (1 - expected) / draws)
    assert deviation[upper].max() < 6
    assert np.abs(deviation[upper] ** 2).mean() == pytest.approx(1, abs=0.1)


@given(st.integers(0, 2**52))
def test_triangle_counts_pairs_in_order(number):
    i, j = (int(end[0]) for end in blocks._triangle(np.array([number])))
    assert 0 <= i < j
    assert j * (j - 1) // 2 + i == number


@pytest.fixture
def data(blocks) -> Data:
    blocks.name = "kept"
    blocks.x[blocks.x < 0.5] = 0  # as bags of words have
    return blocks


@pytest.fixture(params=["structure", "feature", "rewire", "gaussian", "bernoulli", "perturb_edges"])
def shift(request):
    return {
        "gaussian": shifts.feature_noise,
        "bernoulli": partial(shifts.feature_noise, kind="bernoulli"),
        "perturb_edges": partial(shifts.perturb_edges, rate=0.2),
    }.get(request.param) or getattr(shifts, request.param)


def test_same_seed_same_graph_and_nothing_else_is_touched(data, shift):
    before = data.clone()
    a, b, c = shift(data, 1), shift(data, 1), shift(data, 2)
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.edge_index, b.edge_index)
    assert not (torch.equal(a.x, c.x) and torch.equal(a.edge_index, c.edge_index))
    assert data.keys() == before.keys()
    for key in ("x", "edge_index", "y", "train_mask"):
        assert torch.equal(data[key], before[key])
    assert torch.equal(a.y, data.y)
    assert a.mask.all()
    assert a.mask.shape == (120,)
    assert "train_mask" not in a
    assert a.name == "kept"


def test_only_the_ids_of_id_test_nodes_count_where_that_is_asked(data, shift):
    every, rigorous = shift(data, 1), shift(data, 1, test_nodes="id-test")
    assert torch.equal(rigorous.mask, data.test_mask)
    assert torch.equal(rigorous.x, every.x)
    assert torch.equal(rigorous.edge_index, every.edge_index)
    assert "test_mask" not in rigorous


def test_structure_redraws_the_edges_only(data):
    graph = shifts.structure(data, 0)
    assert graph.x is data.x
    assert graph.is_undirected()
    assert not graph.has_self_loops()
    assert graph.is_coalesced()


@settings(max_examples=5)
@given(st.integers(0, 10**6))
def test_structure_has_the_stated_density(seed):
    nodes, classes, edges = 2708, 7, 10556
    data = Data(x=torch.zeros(nodes, 1), y=torch.arange(nodes) % classes, edge_index=torch.zeros(2, edges).long())
    source, target = shifts.structure(data, seed).edge_index
    size = nodes // classes
    block = (torch.arange(nodes) // size).clamp(max=classes - 1)  # the last takes the remainder
    density = edges / (nodes * (nodes - 1))
    same = block[:, None] == block
    pairs_inside = int(same.sum()) - nodes
    pairs_across = nodes**2 - int(same.sum())
    inside = int((block[source] == block[target]).sum())
    for count, pairs, factor in ((inside, pairs_inside, 1.5), (len(source) - inside, pairs_across, 0.5)):
        expected = factor * density * pairs
        assert abs(count - expected) < 6 * (2 * expected) ** 0.5  # an undirected edge counts twice


def test_the_last_block_takes_the_remainder():
    """7 nodes, 2 classes, density ⅔: certain edges within {0, 1, 2} and {3, 4, 5, 6}, chance across."""
    data = Data(x=torch.zeros(7, 1), y=torch.arange(7) % 2, edge_index=torch.zeros(2, 28).long())
    drawn = [set(map(tuple, shifts.structure(data, seed).edge_index.T.tolist())) for seed in range(30)]
    for block in ((0, 1, 2), (3, 4, 5, 6)):
        assert all({(a, b) for a in block for b in block if a != b} <= edges for edges in drawn)
    assert any((2, 3) not in edges for edges in drawn)


def test_feature_blends_two_nodes(data):
    data.x = torch.eye(120)
    graph = shifts.feature(data, 0)
    assert graph.edge_index is data.edge_index
    torch.testing.assert_close(graph.x.sum(dim=1), torch.ones(120))  # w + (1 − w)
    assert set((graph.x > 0).sum(dim=1).tolist()) <= {1, 2}  # at most two nodes each
    weights = graph.x.max(dim=1).values
    assert weights.min() >= 0.5
    blended = weights[(graph.x > 0).sum(dim=1) == 2]
    assert blended.mean().item() == pytest.approx(0.75, abs=0.05)  # the larger of w and 1 − w, w ~ U(0, 1)
    assert blended.std().item() == pytest.approx(0.25 / 3**0.5, abs=0.03)
    assert (graph.x.sum(dim=0) == 0).any()  # drawn with replacement


def test_label_tells_nodes_apart_by_class(data):
    inside, exposure, ood = shifts.label(data, ood={0}, exposure={1})
    for name in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(inside[name], data[name] & (data.y == 2))
    assert torch.equal(exposure.mask, data.y == 1)
    assert torch.equal(ood.mask, data.y == 0)
    for graph in (inside, exposure, ood):
        assert graph.x is data.x
        assert graph.edge_index is data.edge_index
        assert graph.y is data.y
    assert (data.train_mask & (data.y == 0)).any()  # the original is untouched


@pytest.mark.parametrize(
    ("ood", "exposure", "message"),
    [
        (set(), {1}, "'ood' must name at least one class"),
        ({0, 1}, {1}, r"'exposure' must share no class with ood = \[0, 1\]"),
        ({0, 1}, {2}, r"'ood and exposure' must leave at least one of \[0, 1, 2\]"),
        ({7}, {1}, r"'ood and exposure' must leave at least one of"),
    ],
)
def test_bad_classes(data, ood, exposure, message):
    with pytest.raises(ValueError, match=message):
        shifts.label(data, ood=ood, exposure=exposure)


def test_structure_needs_two_nodes():
    with pytest.raises(ValueError, match="'data' must have at least as many nodes as classes"):
        shifts.structure(Data(x=torch.zeros(1, 1), y=torch.zeros(1).long(), edge_index=torch.zeros(2, 0).long()), 0)
