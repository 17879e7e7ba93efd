from __future__ import annotations

import threading

import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from gnnsafe.edges import Cache, Edges, as_edges
from gnnsafe.errors import InputError


def test_the_convolution_equals_pyg(directed):
    edges, weights = gcn_norm(directed.edge_index, num_nodes=5, dtype=torch.float64)
    expected = to_dense_adj(edges, edge_attr=weights, max_num_nodes=5)[0].T  # PyG: [source, target]
    actual = Edges(directed.edge_index, 5).convolution(torch.float64)
    torch.testing.assert_close(actual.csr.to_dense(), expected)


def test_the_convolution_of_a_directed_edge_by_hand():
    matrix = Edges(torch.tensor([[0], [1]]), 2).convolution(torch.float64)
    # node 1 hears 0 and itself (in-degree 2), node 0 only itself
    torch.testing.assert_close(matrix.csr.to_dense(), torch.tensor([[1.0, 0.0], [2**-0.5, 0.5]], dtype=torch.float64))


def test_edges_both_ways_in_any_order_have_a_convolution_that_is_its_own_transpose():
    ends = torch.tensor([[4, 0, 2, 0], [1, 3, 2, 1]])
    both = torch.cat([ends, ends.flip(0)], dim=1)[:, torch.tensor([5, 0, 7, 2, 1, 3, 6, 4])]
    matrix = Edges(both, 5).convolution()
    assert matrix.T is matrix
    one_way = Edges(ends, 5).convolution()
    assert one_way.T is not one_way


def test_matrices_are_those_of_the_edges_in_any_order(directed):
    order = torch.tensor([3, 0, 6, 5, 1, 4, 2])
    for make in (Edges.mean, Edges.convolution, Edges.sum):
        given, other = (make(Edges(index, 5)).csr.to_dense() for index in
                        (directed.edge_index, directed.edge_index[:, order]))  # fmt: skip
        assert torch.equal(given, other)


def test_the_sum_counts_repeated_edges_and_loops(directed):
    expected = to_dense_adj(directed.edge_index, max_num_nodes=5)[0].T + torch.eye(5)
    assert torch.equal(Edges(directed.edge_index, 5).sum().csr.to_dense(), expected)


def test_no_edges_at_all():
    none = torch.empty(2, 0, dtype=torch.int64)
    assert torch.equal(Edges(none, 3).convolution() @ torch.ones(3), torch.ones(3))
    decayed = Edges(none, 3).mean(isolated="decay")
    assert torch.equal(decayed @ torch.ones(3, 2), torch.zeros(3, 2))


@pytest.mark.parametrize("make", [Edges.mean, Edges.convolution, Edges.sum, lambda edges: edges.attention(2)])
def test_what_is_made_of_edges_is_made_once(directed, make):
    edges = Edges(directed.edge_index, 5)
    assert make(edges) is make(edges)
    assert make(edges) is not make(Edges(directed.edge_index, 5))


def test_other_options_are_another_matrix(directed):
    edges = Edges(directed.edge_index, 5)
    assert edges.mean() is not edges.mean(torch.float64)
    assert edges.mean() is not edges.mean(isolated="decay")


def test_threads_make_it_once():
    kept, made, start = Cache(), [], threading.Barrier(8)

    def ask() -> None:
        start.wait()
        kept("key", lambda: made.append(1))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_edges_that_are_written_to_are_no_longer_those(directed):
    edges = as_edges(directed.edge_index, 5)
    assert as_edges(edges, 5) is edges
    with pytest.raises(InputError, match=r"'edges' must be those of 4 nodes \(got 5\)"):
        as_edges(edges, 4)
    directed.edge_index[0, 0] = 3
    with pytest.raises(InputError, match="'edge_index' must be left as it was when the graph was prepared"):
        as_edges(edges, 5)


@pytest.mark.parametrize(("index", "message"), [
    (torch.tensor([[0], [5]]), "'edge_index' must hold node ids < 5"),
    (torch.tensor([[-1], [0]]), "'edge_index' must hold node ids >= 0"),
    (torch.rand(2, 3), "'edge_index' must be an int64 or int32 tensor"),
    ([[0], [1]], "'edge_index' must be a torch.Tensor"),
])  # fmt: skip
def test_what_are_no_edges(index, message):
    with pytest.raises(InputError, match=message):
        as_edges(index, 5)


def test_both_ways_of_node_numbers_whose_products_int32_does_not_hold():
    edges = torch.randint(100_000, (2, 5_000), generator=torch.Generator().manual_seed(0))
    both = Edges(edges.int(), 100_000).both_ways().index
    assert both.dtype == torch.int32
    assert torch.equal(both.long(), Edges(edges, 100_000).both_ways().index)
