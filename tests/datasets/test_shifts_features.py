"""Noise on features: as strong as its formula says, and on nothing else."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gnnsafe.datasets import shifts

EDGES = torch.tensor([[0, 1], [1, 2]])


def bag(num_nodes: int = 400, num_words: int = 250, density: float = 0.04, dtype=torch.float32) -> Data:
    x = torch.rand(num_nodes, num_words, generator=torch.Generator().manual_seed(0)) < density
    return Data(x=x.to(dtype), edge_index=EDGES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strength", [0.1, 2.0])
def test_gaussian_noise_has_the_stated_size(dtype, strength):
    data = bag(dtype=dtype)
    noise = shifts.feature_noise(data, 0, strength=strength).x - data.x
    assert noise.dtype == dtype
    assert float(noise.std()) == pytest.approx(strength * float(data.x.std()), rel=0.01)
    assert float(noise.mean()) == pytest.approx(0, abs=0.01 * strength)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_bernoulli_noise_flips_with_the_stated_probabilities(dtype, strength):
    data = bag(dtype=dtype)
    noisy = shifts.feature_noise(data, 0, kind="bernoulli", strength=strength).x
    assert noisy.dtype == dtype
    assert set(noisy.unique().tolist()) == {0, 1}  # binary stays binary
    density = float(data.x.mean())
    appeared = float(noisy[data.x == 0].mean())
    gone = 1 - float(noisy[data.x == 1].mean())
    assert appeared == pytest.approx(strength * density, rel=0.1)
    assert gone == pytest.approx(strength * (1 - density), rel=0.05)
    assert float(noisy.mean()) == pytest.approx(density, rel=0.05)


@given(st.integers(0, 10**6))
def test_a_word_that_appears_weighs_what_its_row_does(seed):
    data = Data(x=torch.tensor([[0.2, 0.4, 0, 0], [0, 0, 0.9, 0], [0, 0, 0, 0]]), edge_index=EDGES)
    noisy = shifts.feature_noise(data, seed, kind="bernoulli", strength=1.0).x
    for row, given_row, fill in zip(
        noisy, data.x, (0.3, 0.9, 0.5), strict=True
    ):  # (0.2 + 0.4 + 0.9) / 3 for an empty row
        for entry, before in zip(row.tolist(), given_row.tolist(), strict=True):
            assert entry == 0 or entry == pytest.approx(before or fill)


def test_rows_that_sum_to_one_do_so_again():
    data = bag(density=0.02)
    data.x[0] = 0
    data.x /= data.x.sum(dim=1, keepdim=True).clamp(min=1)
    noisy = shifts.feature_noise(data, 0, kind="bernoulli").x
    words = (noisy > 0).any(dim=1)
    torch.testing.assert_close(noisy.sum(dim=1), words.float())
    assert 0.9 < words.float().mean() < 1  # some have lost all their words


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli"])
def test_no_strength_no_change(kind):
    data = bag()
    graph = shifts.feature_noise(data, 0, kind=kind, strength=0.0)
    assert torch.equal(graph.x, data.x)
    assert graph.edge_index is data.edge_index


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (torch.eye(3), {"kind": "uniform"}, "'kind' must be one of gaussian, bernoulli"),
        (torch.eye(3), {"strength": -1.0}, r"'strength' must be >= 0 \(got -1.0\)"),
        (torch.eye(3), {"strength": float("nan")}, "'strength' must be >= 0"),
        (torch.eye(3), {"kind": "bernoulli", "strength": 1.5}, r"'strength' must lie in \[0, 1\] \(got 1.5\)"),
        (torch.ones(3, 3), {"kind": "bernoulli"}, "'x' must be a bag of words: .* a share of 1 not 0"),
        (torch.zeros(3, 3), {"kind": "bernoulli"}, "'x' must be a bag of words"),
        (torch.zeros(3, 0), {"kind": "bernoulli"}, "'x' must be a bag of words"),
        (-torch.eye(3), {"kind": "bernoulli"}, "'x' must be a bag of words"),
        (torch.eye(3).long(), {}, "'x' must be a floating tensor"),
        (torch.eye(3) / 0, {}, "'x' must be finite"),
    ],
)
def test_bad_inputs(x, options, message):
    with pytest.raises(ValueError, match=message) as error:
        shifts.feature_noise(Data(x=x, edge_index=EDGES), 0, **options)
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_noise_wants_dense_features():
    data = Data(x=torch.eye(10).to_sparse_csr(), edge_index=EDGES)
    with pytest.raises(ValueError, match=r"'x' must be dense \(got torch.sparse_csr\); use data.x = data.x.to_dense()"):
        shifts.feature_noise(data, 0)
    assert shifts.rewire(data, 0).x is data.x  # not needed where features stay


@pytest.mark.parametrize("shift", [shifts.feature, shifts.planted, partial(shifts.planted, clustered=True)])
def test_blends_of_sparse_features_are_sparse_and_the_same(shift):
    data = bag(num_nodes=3000, num_words=40)  # more rows than are blended at a time
    sparse = Data(x=data.x.to_sparse_csr(), edge_index=EDGES)
    shifted, dense = shift(sparse, 3), shift(data, 3)
    assert shifted.x.layout == torch.sparse_csr
    assert torch.allclose(shifted.x.to_dense(), dense.x, atol=1e-7)
    assert torch.equal(shifted.mask, dense.mask)
    assert (dense.x.sum(dim=1) != data.x.sum(dim=1)).sum() <= dense.mask.sum()
