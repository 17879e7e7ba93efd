from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gnnsafe import sparse
from gnnsafe.sparse import Gathered, Sparse, density, scipy_csr, sparse_enough


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


@pytest.mark.parametrize("csr", [True, False])
def test_plain_products_equal_those_of_the_cpu(rectangle, csr):
    """With CSR, as on CUDA, and by adding up gathered rows, as on devices without."""
    rows, columns = rectangle.csr.to_dense().nonzero(as_tuple=True)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    matrix = Gathered(rows[order], columns[order], rectangle.csr.to_dense()[rows, columns][order], (7, 4))
    if not csr:
        matrix.csr = matrix.T.csr = None
    right, left = torch.randn(4, 3, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    torch.testing.assert_close(matrix @ right, rectangle @ right)
    torch.testing.assert_close(matrix.T @ left, rectangle.T @ left)
    torch.testing.assert_close(matrix @ right.float(), (rectangle @ right).float())
    assert torch.autograd.gradcheck(lambda r: matrix @ r, right.requires_grad_())
    assert matrix.T.T is matrix


@pytest.mark.parametrize("shape", [(40, 7), (1, 50), (50, 1), (3, 0), (0, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_dense_features_as_scipys_own_csr(monkeypatch, shape, dtype):
    monkeypatch.setattr(sparse, "BLOCK", 16)  # so that there are many
    dense = (torch.randn(shape) * (torch.rand(shape) < 0.2)).to(dtype)
    if dense.numel() > 40:
        dense[-1], dense.view(-1)[0] = 0.0, -0.0
    for x in (dense, dense.T):
        actual, expected = scipy_csr(x), sp.csr_array(x.to(torch.promote_types(dtype, torch.float32)).numpy())
        for part in ("indptr", "indices", "data"):
            np.testing.assert_array_equal(getattr(actual, part), getattr(expected, part))
        assert (actual.dtype, actual.indices.dtype, actual.shape) == (expected.dtype, np.int32, expected.shape)


def test_the_density_of_large_features_is_that_of_some_rows(monkeypatch):
    x = torch.zeros(1000, 20)
    x[:, 3] = 1.0
    assert density(x) == density(x.to_sparse_csr()) == 0.05
    monkeypatch.setattr(sparse, "SAMPLE", 100)
    assert density(x) == 0.05
    assert sparse_enough(x)
    assert not sparse_enough(x + 1)
