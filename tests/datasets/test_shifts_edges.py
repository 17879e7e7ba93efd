"""Edges moved: degrees, counts and directions are kept as promised, on simple graphs and on awkward ones."""

from __future__ import annotations

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gnnsafe.datasets import shifts


def graph(pairs, num_nodes: int, **attributes) -> Data:
    edges = torch.tensor(list(pairs), dtype=torch.int64).reshape(-1, 2).T.contiguous()
    return Data(x=torch.arange(num_nodes, dtype=torch.float32)[:, None], edge_index=edges, **attributes)


def both_ways(pairs) -> list[tuple[int, int]]:
    return [(a, b) for a, b in pairs] + [(b, a) for a, b in pairs if a != b]


def degrees(data: Data) -> list[list[int]]:
    return [torch.bincount(end, minlength=len(data.x)).tolist() for end in data.edge_index]


def repeats(data: Data) -> int:
    return data.num_edges - len(set(map(tuple, data.edge_index.T.tolist())))


def loops(data: Data) -> list[int]:
    source, target = data.edge_index
    return sorted(source[source == target].tolist())


def pairs_of(data: Data) -> list[tuple[int, int]]:
    return sorted(map(tuple, data.edge_index.T.tolist()))


nodes = st.integers(0, 9)
some_pairs = st.lists(st.tuples(nodes, nodes), max_size=30)
seeds = st.integers(0, 10**6)


@given(some_pairs, st.booleans(), seeds)
def test_rewiring_keeps_every_degree_and_adds_no_repeat(pairs, undirected, seed):
    data = graph(both_ways(pairs) if undirected else pairs, 10)
    rewired = shifts.rewire(data, seed)
    assert degrees(rewired) == degrees(data)
    assert rewired.is_undirected() or not undirected
    assert loops(rewired) == loops(data)
    assert repeats(rewired) <= repeats(data)


@given(some_pairs, st.booleans(), st.floats(0, 1), seeds)
def test_perturbing_keeps_the_number_of_edges(pairs, undirected, rate, seed):
    data = graph(both_ways(pairs) if undirected else pairs, 10)
    perturbed = shifts.perturb_edges(data, seed, rate=rate)
    assert perturbed.num_edges == data.num_edges
    assert perturbed.is_undirected() or not undirected
    assert loops(perturbed) == loops(data)
    assert repeats(perturbed) <= repeats(data)


@pytest.mark.parametrize("undirected", [True, False])
def test_rewiring_leaves_few_edges_where_they_were(undirected):
    ring = nx.random_regular_graph(4, 500, seed=1).edges
    data = graph(both_ways(ring) if undirected else ring, 500)
    kept = set(pairs_of(data)) & set(pairs_of(shifts.rewire(data, 0)))
    assert len(kept) < 0.03 * data.num_edges


def test_rewiring_two_edges_gives_each_of_the_graphs_with_their_degrees():
    drawn = [shifts.rewire(graph(both_ways([(0, 1), (2, 3)]), 4), seed).edge_index.tolist() for seed in range(60)]
    expected = [
        graph(sorted(both_ways(p)), 4).edge_index.tolist()
        for p in ([(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0, 3), (1, 2)])
    ]
    assert [edges for edges in expected if drawn.count(edges) > 5] == expected
    assert sum(drawn.count(edges) for edges in expected) == 60
    directed = [pairs_of(shifts.rewire(graph([(0, 1), (2, 3)], 4), seed, sweeps=1)) for seed in range(3)]
    assert directed == [[(0, 3), (2, 1)]] * 3  # sources stay sources


def test_an_odd_number_of_edges_leaves_none_behind():
    data = graph([(0, 1), (2, 3), (4, 5)], 6)
    moved = [set(pairs_of(data)) - set(pairs_of(shifts.rewire(data, seed, sweeps=1))) for seed in range(40)]
    assert set().union(*moved) == set(pairs_of(data))


@pytest.mark.parametrize("whole", [nx.complete_graph(6), nx.star_graph(5)])
def test_where_no_other_graph_has_these_degrees_it_stays(whole):
    data = graph(sorted(both_ways(whole.edges)), 6)
    assert torch.equal(shifts.rewire(data, 0).edge_index, data.edge_index)


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_perturbing_moves_one_end_of_that_share(undirected, rate):
    cycle = [(i, (i + 1) % 400) for i in range(400)]
    data = graph(both_ways(cycle) if undirected else cycle, 400)
    perturbed = shifts.perturb_edges(data, 3, rate=rate)
    gone = set(pairs_of(data)) - set(pairs_of(perturbed))
    assert len(gone) == rate * data.num_edges
    out, into = degrees(perturbed)
    assert (out == into) is (undirected or rate == 0)
    if (
        rate == 1 and not undirected
    ):  # half of the sources go and half of the targets: about 200 e^-½ are left with none
        assert all(90 < degree.count(0) < 150 for degree in (out, into))


@pytest.mark.parametrize("undirected", [True, False])
def test_a_small_simple_graph_stays_simple_and_gets_none_of_its_edges_back(undirected):
    cycle = [(i, (i + 1) % 12) for i in range(12)]
    data = graph(both_ways(cycle) if undirected else cycle, 12)
    for seed in range(40):
        perturbed = shifts.perturb_edges(data, seed, rate=1.0)
        assert repeats(perturbed) == repeats(shifts.rewire(data, seed)) == 0
        assert not set(pairs_of(perturbed)) & set(pairs_of(data))


def test_a_complete_graph_has_no_room_to_perturb():
    data = graph(sorted(both_ways(nx.complete_graph(5).edges)), 5)
    assert torch.equal(shifts.perturb_edges(data, 0, rate=1.0).edge_index, data.edge_index)


def test_a_graph_without_edges_and_one_without_neighbours():
    for data in (graph([], 3), graph([(0, 0)], 1), graph([(2, 2), (2, 2)], 4)):
        for moved in (shifts.rewire(data, 0), shifts.perturb_edges(data, 0, rate=1.0)):
            assert torch.equal(moved.edge_index, data.edge_index)


def test_edges_keep_their_type_and_lose_what_was_said_of_them():
    data = graph([(0, 1), (2, 3), (4, 5)], 7, edge_weight=torch.ones(3), y=torch.arange(7) % 2)
    data.edge_index = data.edge_index.int()
    for moved in (shifts.rewire(data, 0), shifts.perturb_edges(data, 0, rate=1.0), shifts.structure(data, 0)):
        assert moved.edge_index.dtype == torch.int32
        assert "edge_weight" not in moved
        assert moved.x is data.x
        assert moved.y is data.y
    assert shifts.feature(data, 0).edge_weight is data.edge_weight
    assert data.edge_weight.shape == (3,)


def test_any_object_with_features_and_edges_will_do(directed):
    rewired = shifts.rewire(directed, 0)
    assert rewired.x is directed.x
    assert rewired.edge_index.shape == (2, 7)
    assert rewired.mask.all()
    assert not hasattr(directed, "mask")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda data: shifts.rewire(data, 0, sweeps=0), r"'sweeps' must be a whole number >= 1 \(got 0\)"),
        (lambda data: shifts.rewire(data, -1), r"'seed' must be a whole number >= 0 \(got -1\)"),
        (lambda data: shifts.rewire(data, 0.5), r"'seed' must be a whole number >= 0 \(got 0.5\)"),
        (lambda data: shifts.perturb_edges(data, 0, rate=1.5), r"'rate' must lie in \[0, 1\] \(got 1.5\)"),
        (lambda data: shifts.perturb_edges(data, 0, rate=float("nan")), r"'rate' must lie in \[0, 1\] \(got nan\)"),
        (lambda data: shifts.rewire(data, 0, test_nodes="id"), "'test_nodes' must be one of all, id-test"),
        (lambda data: shifts.rewire(data, 0, test_nodes="id-test"), "'test_mask' must be given"),
        (lambda data: shifts.structure(data, 0), "'y' must be given"),
    ],
)
def test_bad_inputs(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call(graph([(0, 1), (2, 3)], 4))
    assert "\n" not in str(error.value)


def test_a_graph_whose_edges_lead_nowhere():
    with pytest.raises(ValueError, match="'edge_index' must hold node ids < 2"):
        shifts.rewire(graph([(0, 5)], 2), 0)


def test_structure_of_a_complete_graph_ends():
    data = graph(both_ways(nx.complete_graph(300).edges), 300, y=torch.zeros(300, dtype=torch.int64))
    assert shifts.structure(data, 0).num_edges == 300 * 299  # 1.5 d is more than certain


def test_structure_of_a_graph_without_labels_in_its_labels():
    with pytest.raises(ValueError, match="'y' must name at least one class"):
        shifts.structure(graph([(0, 1)], 2, y=torch.tensor([-1, -1])), 0)
