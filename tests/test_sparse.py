from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from gnnsafe import sparse
from gnnsafe.sparse import Held, Pattern, Sparse, attention_pattern, gcn_matrix, mean_matrix, remembered, sum_matrix


@pytest.fixture
def rectangle() -> Sparse:
    return Sparse(sp.random_array((7, 4), density=0.4, rng=np.random.default_rng(0)))


def test_product_and_transpose_equal_the_dense_ones(rectangle):
    dense = rectangle.csr.to_dense()
    right, left = torch.randn(4, 3, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    torch.testing.assert_close(rectangle @ right, dense @ right)
    torch.testing.assert_close(rectangle.T @ left, dense.T @ left)
    assert rectangle.T.T is rectangle


def test_gradients_of_first_and_second_order(rectangle):
    right = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: rectangle @ r, right)
    assert torch.autograd.gradgradcheck(lambda r: (rectangle @ r) ** 2, right)


def test_a_symmetric_matrix_is_its_own_transpose(rectangle):
    symmetric = Sparse(sp.csr_array(np.array([[0.0, 2.0], [2.0, 1.0]])))
    assert symmetric.T is symmetric
    assert rectangle.T is not rectangle


def test_indices_have_32_bits(rectangle):
    assert rectangle.csr.col_indices().dtype == torch.int32


def test_gcn_matrix_equals_pyg(directed):
    edges, weights = gcn_norm(directed.edge_index, num_nodes=5, dtype=torch.float64)
    expected = to_dense_adj(edges, edge_attr=weights, max_num_nodes=5)[0].T  # PyG: [source, target]
    actual = gcn_matrix(directed.edge_index, num_nodes=5, dtype=torch.float64)
    torch.testing.assert_close(actual.csr.to_dense(), expected)


def test_gcn_matrix_of_a_directed_edge_by_hand():
    matrix = gcn_matrix(torch.tensor([[0], [1]]), num_nodes=2, dtype=torch.float64)
    # node 1 hears 0 and itself (in-degree 2), node 0 only itself
    torch.testing.assert_close(matrix.csr.to_dense(), torch.tensor([[1.0, 0.0], [2**-0.5, 0.5]], dtype=torch.float64))


def test_sum_matrix_counts_repeated_edges_and_loops(directed):
    expected = to_dense_adj(directed.edge_index, max_num_nodes=5)[0].T + torch.eye(5)
    assert torch.equal(sum_matrix(directed.edge_index, num_nodes=5, dtype=torch.float32).csr.to_dense(), expected)


class TestPattern:
    rows, columns = np.array([2, 0, 1, 0, 2, 2, 2]), np.array([1, 0, 1, 2, 0, 1, 2])  # (2, 1) is there twice

    def test_average_equals_the_dense_one(self):
        pattern = Pattern(self.rows, self.columns, 3)
        assert pattern.times.tolist() == [1, 1, 1, 1, 2, 1]
        scores, dense = torch.randn(6, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
        expected = torch.zeros(3, 2, dtype=torch.float64)
        for row in range(3):
            entries = (pattern.rows == row).nonzero().squeeze(1)
            entries = entries.repeat_interleave(pattern.times[entries])
            expected[row] = scores[entries].softmax(dim=0) @ dense[pattern.columns[entries].long()]
        torch.testing.assert_close(pattern.average(scores, dense), expected)

    def test_gradients(self):
        pattern = Pattern(self.rows, self.columns, 3)
        scores = torch.randn(6, dtype=torch.float64, requires_grad=True)
        dense = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(pattern.average, (scores, dense))

    def test_a_graph_of_64_bit_or_32_bit_ids(self, directed):
        wide, narrow = (attention_pattern(edges, num_nodes=5, heads=2) for edges in
                        (directed.edge_index, directed.edge_index.int()))  # fmt: skip
        assert torch.equal(wide.columns, narrow.columns)
        assert wide.rows.dtype == torch.int32


def test_no_edges_at_all():
    none = torch.empty(2, 0, dtype=torch.int64)
    assert torch.equal(gcn_matrix(none, num_nodes=3, dtype=torch.float32) @ torch.ones(3), torch.ones(3))
    decayed = mean_matrix(none, num_nodes=3, dtype=torch.float32, isolated="decay")
    assert torch.equal(decayed @ torch.ones(3, 2), torch.zeros(3, 2))


class TestRemembered:
    @pytest.fixture
    def edges(self) -> torch.Tensor:
        return torch.tensor([[0, 1], [1, 0]])

    @staticmethod
    def matrix(edges: torch.Tensor, **options) -> Sparse:
        return mean_matrix(edges, **{"num_nodes": 3, "dtype": torch.float32, "isolated": "keep", **options})

    def test_the_same_graph_is_built_once(self, edges):
        assert self.matrix(edges) is self.matrix(edges)

    def test_an_edit_in_place_is_seen(self, edges):
        before = self.matrix(edges)
        edges[1, 0] = 2
        assert self.matrix(edges) is not before
        assert self.matrix(edges).csr.to_dense()[2].tolist() == [1.0, 0.0, 0.0]

    def test_an_edit_behind_torchs_back_is_seen(self, edges):
        self.matrix(edges)
        version = edges._version
        edges.numpy()[1, 0] = 2
        assert edges._version == version  # which is why the version counter is not trusted
        assert self.matrix(edges).csr.to_dense()[2].tolist() == [1.0, 0.0, 0.0]

    def test_another_graph_at_the_same_address_is_seen(self):
        answers = []
        for target in (1, 2, 1, 2):
            edges = torch.tensor([[0], [target]])
            answers.append(self.matrix(edges).csr.to_dense()[target, 0].item())
            del edges
        assert answers == [1.0] * 4

    @pytest.mark.parametrize("options", [{"num_nodes": 4}, {"dtype": torch.float64}, {"isolated": "decay"}])
    def test_other_options_are_another_matrix(self, edges, options):
        assert self.matrix(edges, **options) is not self.matrix(edges)

    def test_the_same_bytes_in_another_shape_are_another_matrix(self):
        build = remembered(lambda tensor: tuple(tensor.shape))
        tensor = torch.arange(6)
        assert build(tensor) == (6,)
        tensor.resize_(2, 3)
        assert build(tensor) == (2, 3)

    def test_a_csr_tensor_is_compared_by_content(self):
        build = remembered(lambda tensor: tensor.to_dense())
        tensor = Sparse(sp.eye_array(3, format="csr")).csr
        assert torch.equal(build(tensor), torch.eye(3, dtype=torch.float64))
        tensor.values().numpy()[0] = 5
        assert build(tensor)[0, 0] == 5

    def test_it_is_freed_with_the_graph(self, edges):
        alive = weakref.ref(self.matrix(edges))
        assert alive() is not None
        del edges
        gc.collect()
        assert alive() is not None  # the fixture still holds the tensor
        other = torch.tensor([[0], [2]])
        alive = weakref.ref(self.matrix(other))
        del other
        gc.collect()
        assert alive() is None


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_any_width(columns, dtype):
    """Wide ones of float32 are embedding bags; a row without entries, strides and gradients are as in the dense one."""
    entries = sp.random_array((30, 20), density=0.2, rng=np.random.default_rng(0)).toarray()
    entries[3] = entries[:, 5] = 0.0
    matrix = Sparse(sp.csr_array(torch.from_numpy(entries).to(dtype).numpy()))
    dense = torch.randn(columns, 20, dtype=dtype).T.requires_grad_()  # rows lie apart
    expected = torch.from_numpy(entries).to(dtype) @ dense
    actual = matrix @ dense
    torch.testing.assert_close(actual, expected)
    direction = torch.randn_like(expected)
    torch.testing.assert_close(*(torch.autograd.grad((y * direction).sum(), dense) for y in (actual, expected)))
    with torch.no_grad():
        assert torch.equal(matrix @ dense, actual)


def test_what_is_held_is_read_once(monkeypatch):
    edges, reads = torch.tensor([[0], [1]]), []
    digest = sparse.xxhash.xxh3_128_digest
    monkeypatch.setattr(sparse.xxhash, "xxh3_128_digest", lambda content: reads.append(1) or digest(content))

    def matrix() -> object:
        return mean_matrix(edges, num_nodes=2, dtype=torch.float32, isolated="keep")

    before = matrix()
    constant = Held(edges)
    with constant:
        assert len(reads) == 2
        assert matrix() is matrix() is before
        assert len(reads) == 2
    edges[:] = torch.tensor([[1], [0]])
    assert matrix() is not before  # it is read again, once nobody says that it keeps its content
    other = matrix()
    with constant:  # untrue, which harms nobody else
        wrong = mean_matrix(edges, num_nodes=3, dtype=torch.float32, isolated="keep")
    assert matrix() is other
    assert (
        mean_matrix(edges, num_nodes=3, dtype=torch.float32, isolated="keep") is wrong
    )  # kept for what it was made of
