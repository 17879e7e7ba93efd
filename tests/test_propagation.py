from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnsafe import propagate
from gnnsafe.edges import Edges
from gnnsafe.propagation import Propagation, shares, weights


@st.composite
def graphs(draw):
    """Any directed multigraph of up to 8 nodes, with a score for each."""
    nodes = draw(st.integers(1, 8))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=20))
    scores = draw(st.lists(st.floats(-100, 100), min_size=nodes, max_size=nodes))
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    return torch.tensor(scores, dtype=torch.float64), edge_index


settings = {"alpha": st.floats(0, 1), "steps": st.integers(0, 5), "isolated": st.sampled_from(["keep", "decay"])}


def test_a_value_worked_out_by_hand(directed):
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    # 0 hears 2; 1 hears 0 twice; 2 hears 1, 3 and itself twice; no edges lead to 3 and 4.
    once = propagate(scores, directed.edge_index, steps=1, alpha=0.25)
    expected = [0.25 + 0.75 * 3, 0.5 + 0.75 * 1, 0.75 + 0.75 * (2 + 4 + 3 + 3) / 4, 4.0, 5.0]
    assert once.tolist() == pytest.approx(expected)
    decayed = propagate(scores, directed.edge_index, steps=2, alpha=0.25, isolated="decay")
    assert decayed[3:].tolist() == pytest.approx([4.0 / 16, 5.0 / 16])


def test_repeated_edges_count_as_often_as_given():
    scores = torch.tensor([3.0, 0.0, 0.0])
    edges = torch.tensor([[0, 0, 1], [2, 2, 2]])
    assert propagate(scores, edges, steps=1, alpha=0.0)[2].item() == pytest.approx(2.0)


def test_information_flows_along_the_edges_not_against_them():
    scores = propagate(torch.tensor([1.0, 0.0]), torch.tensor([[0], [1]]), steps=1)
    assert scores.tolist() == [1.0, 0.5]


def test_equal_to_networkx():
    graph = nx.gnp_random_graph(30, 0.1, seed=1, directed=True)
    edges = torch.tensor(list(graph.edges)).T
    matrix = nx.to_numpy_array(graph, nodelist=range(30)).T  # networkx: A[source, target]
    degree = matrix.sum(1, keepdims=True)
    scores = np.random.default_rng(0).normal(size=30)
    expected = scores
    for _ in range(3):
        expected = 0.3 * expected + 0.7 * np.divide(matrix @ expected[:, None], degree, where=degree > 0,
                                                    out=expected[:, None].copy())[:, 0]  # fmt: skip
    actual = propagate(torch.from_numpy(scores), edges, steps=3, alpha=0.3)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


@given(graphs(), st.floats(-100, 100), settings["alpha"], settings["steps"])
def test_constants_are_conserved(graph, constant, alpha, steps):
    scores, edges = torch.full_like(graph[0], constant), graph[1]
    torch.testing.assert_close(propagate(scores, edges, steps=steps, alpha=alpha), scores)


@given(graphs(), settings["alpha"], settings["steps"], settings["isolated"])
def test_it_is_linear(graph, alpha, steps, isolated):
    scores, edges = graph
    other = torch.arange(len(scores), dtype=torch.float64)
    both = propagate(2 * scores - other, edges, steps=steps, alpha=alpha, isolated=isolated)
    apart = [propagate(s, edges, steps=steps, alpha=alpha, isolated=isolated) for s in (scores, other)]
    torch.testing.assert_close(both, 2 * apart[0] - apart[1])


@given(graphs(), settings["alpha"], settings["steps"])
def test_it_never_leaves_the_range_of_its_inputs(graph, alpha, steps):
    scores, edges = graph
    result = propagate(scores, edges, steps=steps, alpha=alpha)
    assert result.min() >= scores.min() - 1e-9
    assert result.max() <= scores.max() + 1e-9


@given(graphs(), st.floats(0.01, 0.99))
def test_proposition_2_a_node_moves_towards_the_mean_of_its_neighbours(graph, alpha):
    scores, (source, target) = graph[0], graph[1]
    after = propagate(scores, graph[1], steps=1, alpha=alpha)
    for node in range(len(scores)):
        heard = scores[source[target == node]]
        if len(heard) and abs(heard.mean() - scores[node]) > 1e-6:
            assert torch.sign(after[node] - scores[node]) == torch.sign(heard.mean() - scores[node])
        elif not len(heard):
            assert after[node] == scores[node]


@given(graphs(), settings["steps"], settings["isolated"])
def test_the_order_of_nodes_and_edges_does_not_matter(graph, steps, isolated):
    scores, edges = graph
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)
    shuffled = propagate(scores[order], place[edges].flip(1), steps=steps, isolated=isolated)
    torch.testing.assert_close(shuffled, propagate(scores, edges, steps=steps, isolated=isolated)[order])


def test_no_steps_change_nothing_and_alpha_one_neither(directed):
    scores = torch.randn(5)
    assert torch.equal(propagate(scores, directed.edge_index, steps=0), scores)
    assert torch.equal(propagate(scores, directed.edge_index, alpha=1.0), scores)


def test_a_kept_isolated_score_is_kept_to_the_bit():
    scores = torch.rand(100)
    assert torch.equal(propagate(scores, torch.empty(2, 0, dtype=torch.int64), steps=9, alpha=0.3), scores)


@pytest.mark.parametrize("isolated", ["keep", "decay"])
def test_gradients_through_the_propagation(directed, isolated):
    scores = torch.randn(5, dtype=torch.float64, requires_grad=True)

    def function(s):
        return propagate(s, directed.edge_index, steps=3, alpha=0.3, isolated=isolated)

    assert torch.autograd.gradcheck(function, scores)
    assert torch.autograd.gradgradcheck(function, scores)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(directed, dtype):
    scores = torch.randn(5, dtype=dtype)
    result = propagate(scores, directed.edge_index)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), propagate(scores.double(), directed.edge_index), atol=1e-6, rtol=0)


def test_int32_edges_give_the_same(directed):
    scores = torch.randn(5)
    assert torch.equal(propagate(scores, directed.edge_index.int()), propagate(scores, directed.edge_index))


def test_numpys_numbers_are_numbers(directed):
    scores = torch.randn(5)
    result = propagate(scores, directed.edge_index, steps=np.int64(3), alpha=np.float32(0.5))
    assert torch.equal(result, propagate(scores, directed.edge_index, steps=3, alpha=0.5))


def test_inputs_are_left_alone(directed):
    scores, edges = torch.randn(5), directed.edge_index.clone()
    before = scores.clone()
    propagate(scores, directed.edge_index)
    assert torch.equal(scores, before)
    assert torch.equal(directed.edge_index, edges)


EDGES = torch.tensor([[0], [1]])


@pytest.mark.parametrize(
    ("scores", "edges", "options", "message"),
    [
        (torch.zeros(2), EDGES, {"alpha": 1.5}, r"'alpha' must lie in \[0, 1\] \(got 1.5\)"),
        (torch.zeros(2), EDGES, {"alpha": float("nan")}, r"'alpha' must lie in \[0, 1\]"),
        (torch.zeros(2), EDGES, {"steps": -1}, r"'steps' must be a whole number >= 0 \(got -1\)"),
        (torch.zeros(2), EDGES, {"steps": 1.5}, r"'steps' must be a whole number"),
        (torch.zeros(2), EDGES, {"steps": True}, r"'steps' must be a whole number"),
        (torch.zeros(2), EDGES, {"alpha": "half"}, r"'alpha' must lie in"),
        (torch.zeros(2), EDGES.to_sparse(), {}, r"'edge_index' must be dense \(got torch.sparse_coo\)"),
        (torch.zeros(2), EDGES, {"isolated": "kep"}, r"one of keep, decay \(got 'kep'\); did you mean 'keep'\?"),
        (torch.zeros(2), torch.tensor([[0], [2]]), {}, r"'edge_index' must hold node ids < 2, .*\(got 2\)"),
        (torch.zeros(2), torch.tensor([[-1], [0]]), {}, r"'edge_index' must hold node ids >= 0 \(got -1\)"),
        (torch.zeros(2), EDGES.T, {}, r"'edge_index' must be an int64 or int32 .* shape \[2, edges\] .* \[1, 2\]"),
        (torch.zeros(2), EDGES.float(), {}, r"'edge_index' must be an int64 or int32 .*got torch.float32"),
        (torch.zeros(2), [[0], [1]], {}, r"'edge_index' must be a torch.Tensor \(got list\)"),
        (torch.zeros(2, 1), EDGES, {}, r"'scores' must be .* of shape \[nodes\] \(got torch.float32 \[2, 1\]\)"),
        (torch.zeros(2, dtype=torch.int64), EDGES, {}, r"'scores' must be a float32 or float64"),
        (torch.tensor([0.0, float("nan")]), EDGES, {}, r"'scores' must be finite"),
    ],
)  # fmt: skip
def test_bad_input(scores, edges, options, message):
    with pytest.raises(ValueError, match=message):
        propagate(scores, edges, **options)


def test_weights_by_hand(directed):
    # 1 hears 0 twice, 0 hears 2: after two steps 1 is ¼ itself, ½ of 0 (by two ways), ¼ of 2.
    assert weights(directed.edge_index, 1, num_nodes=5).tolist() == [0.5, 0.25, 0.25, 0.0, 0.0]
    assert weights(directed.edge_index, 3, num_nodes=5).tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]
    assert weights(directed.edge_index, 3, num_nodes=5, isolated="decay").tolist() == [0.0, 0.0, 0.0, 0.25, 0.0]
    assert shares(torch.tensor([4.0, 8.0, 2.0, 1.0, 1.0]), directed.edge_index, 1).tolist() == [2.0, 2.0, 0.5, 0.0, 0.0]


@given(graph=graphs(), **settings)
def test_shares_sum_to_the_propagated_score(graph, steps, alpha, isolated):
    scores, edge_index = graph
    how = {"steps": steps, "alpha": alpha, "isolated": isolated}
    propagated = propagate(scores, edge_index, **how)
    for node in range(len(scores)):
        total = shares(scores, edge_index, node, **how).sum()
        assert float(total) == pytest.approx(float(propagated[node]), abs=1e-10)
        row = weights(edge_index, node, num_nodes=len(scores), **how)
        assert torch.equal(Propagation(**how).weights(edge_index, node, scores), row)


@given(graph=graphs(), **settings)
def test_weights_are_a_row_of_the_matrix_power(graph, steps, alpha, isolated):
    scores, edge_index = graph
    size = len(scores)
    columns = [
        propagate(torch.eye(size, dtype=torch.float64)[j], edge_index, steps=steps, alpha=alpha, isolated=isolated)
        for j in range(size)
    ]
    power = torch.stack(columns, dim=1)
    for node in range(size):
        row = weights(edge_index, node, num_nodes=size, steps=steps, alpha=alpha, isolated=isolated)
        torch.testing.assert_close(row, power[node])


@pytest.mark.parametrize("node", [-1, 3, None, True, 1.0, "0"])
def test_shares_and_weights_are_of_a_node_that_is_there(node):
    path = torch.tensor([[0, 1], [1, 2]])
    for ask in (lambda: weights(path, node, num_nodes=3), lambda: shares(torch.ones(3), path, node)):
        with pytest.raises(ValueError, match=r"'node' must be a node's number, 0\.\.2 \(got "):
            ask()


def test_the_largest_scores_of_float32():
    most = torch.finfo(torch.float32).max
    edges = torch.tensor([[0, 1, 2, 0, 1, 2], [1, 0, 1, 2, 2, 2]])
    assert propagate(torch.tensor([most, -most, 0.0]), edges[:, :2], steps=1).tolist() == [0.0, 0.0, 0.0]
    assert propagate(torch.full((3,), most), edges).tolist() == [most] * 3


@given(graph=graphs(), **settings)
def test_edges_that_are_read_once_and_prepared_ones_give_the_same(graph, steps, alpha, isolated):
    scores, edge_index = graph
    how = {"steps": steps, "alpha": alpha, "isolated": isolated}
    prepared = propagate(scores, Edges(edge_index, len(scores)), **how)
    torch.testing.assert_close(propagate(scores, edge_index, **how), prepared)


@pytest.mark.parametrize("isolated", ["keep", "decay"])
def test_a_hub_that_many_speak_to_is_exact_in_float32(isolated):
    scores = torch.rand(100_000) * 1e-3 + 1.0
    to_the_hub = torch.stack([torch.arange(1, 100_000), torch.zeros(99_999, dtype=torch.int64)])
    once = propagate(scores, to_the_hub, alpha=0.0, steps=1, isolated=isolated)[0].double()
    assert abs(once / scores[1:].double().mean() - 1) < 1e-7


class TestSimilarity:
    """Neighbours weighed by how alike they score: w_ij = softmax_j(1 − |e_i − e_j|)."""

    def test_by_hand(self):
        # 2 hears 0 and 1, whose scores are 0 and log 3 away from its own: weights ¾ and ¼; no edges lead to 0 and 1
        scores = torch.tensor([1.0, 1.0 - math.log(3), 1.0, 5.0])
        edges = torch.tensor([[0, 1], [2, 2]])
        once = Propagation(1, alpha=0.5, weighting="similarity")(scores, edges)
        heard = 0.75 * 1.0 + 0.25 * (1 - math.log(3))
        assert once.tolist() == pytest.approx([1.0, 1 - math.log(3), 0.5 + 0.5 * heard, 5.0])
        decayed = Propagation(2, 0.5, "decay", "similarity")(scores, edges)
        assert decayed[3].item() == pytest.approx(5.0 / 4)

    def test_weights_are_those_of_the_scores_before_the_first_step(self):
        # 0 → 1 → 2, one neighbour each: similarity changes nothing, however many steps
        scores, path = torch.tensor([8.0, 0.0, 2.0]), torch.tensor([[0, 1], [1, 2]])
        alike, equal = (Propagation(3, weighting=how)(scores, path) for how in ("similarity", "equal"))
        torch.testing.assert_close(alike, equal)

    def test_an_edge_given_twice_counts_twice(self):
        scores = torch.tensor([0.0, 3.0, 1.5])  # 0 and 1 are as far from 2
        once = Propagation(1, alpha=0.0, weighting="similarity")(scores, torch.tensor([[0, 1, 1], [2, 2, 2]]))
        assert once[2].item() == pytest.approx(2.0)

    def test_scores_far_apart_do_not_overflow(self):
        scores = torch.tensor([1e30, -1e30, 0.0, 1.0])
        found = Propagation(2, weighting="similarity")(scores, torch.tensor([[0, 1, 3], [2, 2, 2]]))
        assert found.isfinite().all()
        assert found[2].item() == pytest.approx(0.75)  # it hears 3 alone

    @given(graph=graphs(), **settings)
    def test_shares_sum_to_the_score_and_equal_scores_stay(self, graph, steps, alpha, isolated):
        scores, edge_index = graph
        how = Propagation(steps, alpha, isolated, "similarity")
        propagated = how(scores, edge_index)
        for node in range(len(scores)):
            row = how.weights(edge_index, node, scores)
            assert float((row * scores).sum()) == pytest.approx(float(propagated[node]), abs=1e-9)
            assert (row >= 0).all()
        if isolated == "keep":
            torch.testing.assert_close(how(torch.full_like(scores, 3.0), edge_index), torch.full_like(scores, 3.0))
            assert propagated.min() >= scores.min() - 1e-9
            assert propagated.max() <= scores.max() + 1e-9

    def test_no_such_weighting(self):
        with pytest.raises(ValueError, match="'weighting' must be"):
            Propagation(weighting="alike")
