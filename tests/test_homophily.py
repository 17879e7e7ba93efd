from __future__ import annotations

import math

import networkx as nx
import pytest
import torch

from gnnsafe.homophily import homophily, label_homophily, mean_homophily, score_homophily


def undirected(graph: nx.Graph) -> torch.Tensor:
    edges = torch.tensor(list(graph.edges)).T
    return torch.cat([edges, edges.flip(0)], dim=1)


def test_equal_to_networkx():
    graph = nx.gnp_random_graph(40, 0.15, seed=1)
    classes, scores = torch.arange(40) % 3, torch.arange(40.0) ** 2
    for node in graph:
        graph.nodes[node].update(label=int(classes[node]), score=float(scores[node]))
    share, adjusted = homophily(classes, undirected(graph))
    alike = [classes[a] == classes[b] for a, b in graph.edges]
    assert share == pytest.approx(sum(map(float, alike)) / len(alike))
    assert adjusted == pytest.approx(nx.attribute_assortativity_coefficient(graph, "label"))
    numeric = nx.numeric_assortativity_coefficient(graph, "score")
    assert score_homophily(scores, undirected(graph)) == pytest.approx(numeric)


def test_self_loops_do_not_count():
    edges = torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0]])
    assert homophily(torch.tensor([0, 1]), edges) == (0.0, -1.0)
    assert score_homophily(torch.tensor([0.0, 1.0]), edges) == -1.0


def test_nothing_to_say():
    nothing = torch.empty(2, 0, dtype=torch.int64)
    assert all(map(math.isnan, homophily(torch.tensor([0, 1]), nothing)))
    assert math.isnan(score_homophily(torch.tensor([0.0, 1.0]), nothing))
    share, adjusted = homophily(torch.tensor([1, 1]), torch.tensor([[0], [1]]))
    assert share == 1.0
    assert math.isnan(adjusted)


def test_a_directed_edge_has_two_ends():
    edges = torch.tensor([[0, 1], [1, 2]])  # classes 0, 0, 1: ends 0 0, 0 1; q = (3/4, 1/4)
    share, adjusted = homophily(torch.tensor([0, 0, 1]), edges)
    assert (share, adjusted) == (0.5, pytest.approx((0.5 - 10 / 16) / (6 / 16)))


def test_several_labels():
    edges = torch.tensor([[0, 1], [1, 0]])
    columns = torch.tensor([[0, 1], [1, 1]])  # the first label differs, everyone has the second
    assert mean_homophily(columns, edges) == (0.5, -1.0)


def test_nodes_without_a_label_have_no_say():
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]).repeat(1, 10)  # a path of four, over and over
    everyone = torch.ones(4, dtype=torch.bool)
    expected = homophily(torch.tensor([0, 0, 1]), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    assert label_homophily(torch.tensor([0, 0, 1, -1]), everyone, edges) == pytest.approx(expected)
    assert label_homophily(torch.tensor([0, -1, 1, -1]), everyone, edges) is None
