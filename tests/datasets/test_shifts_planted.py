"""Planted nodes: as many as asked, from the right nodes, scattered or clustered, in an otherwise unchanged graph."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gnnsafe.datasets import shifts

KINDS = ("feature", "structure")


def cycle(num_nodes: int, *, undirected: bool = True) -> Data:
    there = torch.stack([torch.arange(num_nodes), torch.arange(1, num_nodes + 1) % num_nodes])
    edges = torch.cat([there, there.flip(0)], dim=1) if undirected else there
    return Data(x=torch.eye(num_nodes), edge_index=edges)


def pairs_of(data: Data) -> set[tuple[int, int]]:
    return set(map(tuple, data.edge_index.T.tolist()))


def touching(pairs: set[tuple[int, int]], mask: torch.Tensor) -> set[tuple[int, int]]:
    return {(a, b) for a, b in pairs if mask[a] or mask[b]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clustered", [True, False])
def test_planted_nodes_stand_among_untouched_ones(blocks, kind, clustered):
    before = blocks.clone()
    a, b, c = (shifts.planted(blocks, seed, kind=kind, share=0.2, clustered=clustered) for seed in (1, 1, 2))
    for name in ("x", "edge_index", "mask", "test_mask"):
        assert torch.equal(a[name], b[name])
    assert not torch.equal(a.mask, c.mask)
    assert int(a.mask.sum()) == 24
    assert not (a.mask & (blocks.train_mask | blocks.val_mask)).any()
    assert torch.equal(a.test_mask, blocks.test_mask & ~a.mask)
    for name in ("train_mask", "val_mask", "y"):
        assert a[name] is blocks[name]
    assert blocks.keys() == before.keys()
    for name in blocks.keys():  # noqa: SIM118
        assert torch.equal(blocks[name], before[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_planted_features_are_blends_of_two_nodes(dtype):
    data = cycle(60)
    data.x = data.x.to(dtype)
    graph = shifts.planted(data, 0, kind="feature", share=0.25)
    assert graph.edge_index is data.edge_index
    assert graph.x.dtype == dtype
    assert torch.equal(graph.x[~graph.mask], data.x[~graph.mask])
    blended = graph.x[graph.mask]
    assert len(blended) == 15
    torch.testing.assert_close(blended.sum(dim=1), torch.ones(15, dtype=dtype))
    assert ((blended > 0).sum(dim=1) <= 2).all()
    assert not (blended == data.x[graph.mask]).all(dim=1).any()


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("clustered", [True, False])
def test_planted_nodes_lose_every_edge_and_get_as_many(undirected, clustered):
    data = cycle(200, undirected=undirected)
    graph = shifts.planted(data, 0, kind="structure", share=0.1, clustered=clustered)
    assert graph.x is data.x
    old, new = pairs_of(data), pairs_of(graph)
    assert not touching(old, graph.mask) & new  # all of theirs are gone
    assert old - touching(old, graph.mask) <= new  # all others are kept
    assert len(new - old) == len(touching(old, graph.mask))
    assert all(graph.mask[a] or graph.mask[b] for a, b in new - old)
    assert graph.is_undirected() is undirected
    assert graph.num_edges == len(new) == data.num_edges


def test_planted_edges_keep_their_direction():
    edges = torch.tensor([[0, 0, 0, 9], [1, 2, 3, 0]])  # only node 0 may be planted
    train = torch.arange(40) == 39
    data = Data(x=torch.eye(40), edge_index=edges, train_mask=train, val_mask=(torch.arange(40) > 0) & ~train)
    data.val_mask[20] = False  # one to be left
    graphs = [shifts.planted(data, seed, kind="structure", share=0.01) for seed in range(8)]
    drawn = [graph for graph in graphs if graph.mask[0]]
    assert drawn
    for graph in drawn:
        source, target = graph.edge_index
        assert (source == 0).sum() == 3
        assert (target == 0).sum() == 1


@given(st.integers(0, 10**6), st.integers(20, 80))
def test_clusters_on_a_cycle_are_few_runs(seed, num_nodes):
    mask = shifts.planted(cycle(num_nodes), seed, share=0.3, clustered=True).mask
    count = round(0.3 * num_nodes)
    assert int(mask.sum()) == count
    runs = int((mask & ~mask.roll(1)).sum())
    assert runs <= int(count**0.5)


def test_clusters_are_denser_than_scattered_nodes(blocks):
    def inner_edges(clustered: bool) -> int:
        graphs = [shifts.planted(blocks, seed, share=0.1, clustered=clustered) for seed in range(20)]
        return sum(int(graph.mask[graph.edge_index].all(dim=0).sum()) for graph in graphs)

    assert inner_edges(True) > 2 * inner_edges(False)


def test_balls_grow_through_training_nodes_and_against_edges():
    data = cycle(30, undirected=False)
    data.train_mask = torch.arange(30) % 2 == 0
    mask = shifts.planted(data, 0, share=0.03, clustered=True).mask
    assert int(mask.sum()) == 1
    mask = shifts.planted(data, 0, share=0.1, clustered=True).mask  # one seed, 3 nodes
    odd = mask[1::2]
    assert int(odd.sum()) == 3
    assert int((odd & ~odd.roll(1)).sum()) == 1  # one run of every second node


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clustered", [True, False])
def test_isolated_nodes_and_self_loops(kind, clustered):
    data = Data(x=torch.eye(50), edge_index=torch.tensor([[0, 1, 2, 2], [1, 0, 2, 2]]))
    for seed in range(5):
        graph = shifts.planted(data, seed, kind=kind, share=0.9, clustered=clustered)
        assert int(graph.mask.sum()) == 45
        assert torch.equal(graph.test_mask, ~graph.mask)  # no split: all others are ID test nodes
        assert "train_mask" not in graph
        assert graph.num_edges == 4
        assert graph.is_undirected()
        assert (2, 2) in pairs_of(graph)


def test_any_object_with_features_and_edges_will_do(directed):
    graph = shifts.planted(directed, 0, kind="structure", share=0.4)
    assert int(graph.mask.sum()) == 2
    assert graph.edge_index.shape == (2, 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "label"}, "'kind' must be one of feature, structure"),
        ({"share": 0.0}, r"'share' must lie in \(0, 1\) \(got 0.0\)"),
        ({"share": 1}, r"'share' must lie in \(0, 1\) \(got 1\)"),
        ({"share": 0.5}, r"'share' must leave some of the 50 nodes to choose from \(got 60 nodes\)"),
        ({"seed": -1}, "'seed' must be a whole number >= 0"),
    ],
)
def test_bad_inputs(blocks, options, message):
    with pytest.raises(ValueError, match=message) as error:
        shifts.planted(blocks, **{"seed": 0, **options})
    assert "\n" not in str(error.value)


def test_at_least_one_test_node_must_be_left():
    data = cycle(10)
    chosen = int(shifts.planted(data, 0).mask.nonzero())  # the one of 10 that this seed takes
    data.test_mask = torch.arange(10) == chosen
    with pytest.raises(
        ValueError, match=r"'share' must leave at least one ID test node \(got 0.1\); plant fewer nodes"
    ):
        shifts.planted(data, 0)
