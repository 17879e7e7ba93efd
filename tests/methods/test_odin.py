from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import scipy.sparse as sp
import torch
from torch import nn

from gnnsafe import Outputs
from gnnsafe.methods import MSP, ODIN, perturbation
from gnnsafe.models import MODELS
from gnnsafe.sparse import Sparse

NO_EDGES = torch.empty(2, 0, dtype=torch.int64)


class Slopes(nn.Module):
    """Logits (x₁, −2 x₂)."""

    def forward(self, x, edge_index):
        return x * torch.tensor([1.0, -2.0], dtype=x.dtype)


def outputs(x, model=None):
    return Outputs.of(model or Slopes(), SimpleNamespace(x=x, edge_index=NO_EDGES))


def fitted(method, x, **options):
    return method.fit(
        outputs(x, **options), torch.zeros(len(x), dtype=torch.int64), torch.ones(len(x), dtype=torch.bool)
    )


def test_by_hand():
    # z = (1, 0): class 1 is predicted, so x₁ goes up by ε and, z₂ = −2 x₂, x₂ too: z' = (1 + ε, −2ε), T = 2
    x = torch.tensor([[1.0, 0.0]])
    score = fitted(ODIN(temperature=2.0, epsilon=0.1), x).score(outputs(x))
    assert score.item() == pytest.approx(-1 / (1 + math.exp(-(1.1 + 0.2) / 2)))


def test_by_hand_where_all_features_have_one_slope():
    # z = (s, 2s) with s = Σ x = 1: class 2 is predicted, so both features go up by ε: s' = 1.2, T = 2
    class OfTheSum(nn.Module):
        def forward(self, x, edge_index):
            return x.sum() * torch.tensor([[1.0, 2.0]])  # whose gradient torch gives as one number, expanded

    x = torch.tensor([[1.0, 0.0]])
    score = fitted(ODIN(temperature=2.0, epsilon=0.1), x, model=OfTheSum()).score(outputs(x, OfTheSum()))
    assert score.item() == pytest.approx(-1 / (1 + math.exp(-1.2 / 2)))


def test_without_a_step_at_temperature_one_it_is_msp():
    x = torch.randn(9, 2)
    torch.testing.assert_close(fitted(ODIN(temperature=1.0, epsilon=0.0), x).score(outputs(x)), MSP().score(outputs(x)))


def test_the_default_step_scales_with_the_features():
    x = torch.tensor([[3.0, 4.0]])  # root mean square √12.5
    assert fitted(ODIN(), x).epsilon_ == pytest.approx(0.0014 * math.sqrt(12.5))
    assert fitted(ODIN(), 100 * x).epsilon_ == pytest.approx(0.14 * math.sqrt(12.5))
    assert fitted(ODIN(epsilon=0.5), x).epsilon_ == 0.5


def test_a_step_reaches_the_neighbours():
    class Sum(nn.Module):
        """Each node's logits are those of the nodes that point to it."""

        def forward(self, x, edge_index):
            return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])

    graph = SimpleNamespace(x=torch.tensor([[1.0, 0.0], [9.0, 9.0]]), edge_index=torch.tensor([[0], [1]]))
    result = Outputs.of(Sum(), graph)
    method = ODIN(temperature=1.0, epsilon=0.25).fit(
        result, torch.zeros(2, dtype=torch.int64), torch.tensor([True, True])
    )
    # node 1 hears node 0 alone, whose features move to (1.25, −0.25)
    assert method.score(result)[1].item() == pytest.approx(-1 / (1 + math.exp(-1.5)))


def test_gradients_are_taken_of_the_features_alone():
    model = nn.Linear(2, 2)
    model.forward = lambda x, edge_index: x @ model.weight.T
    x = torch.randn(5, 2)
    fitted(ODIN(), x, model=model).score(outputs(x, model=model))
    assert model.weight.grad is None
    assert x.grad is None
    assert not x.requires_grad


def test_sparse_features():
    dense = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    sparse = SimpleNamespace(x=Sparse(sp.csr_array(dense.numpy())).csr, edge_index=NO_EDGES)

    class Dense(Slopes):
        def forward(self, x, edge_index):
            return super().forward(x.to_dense() if x.layout == torch.sparse_csr else x, edge_index)

    labels, mask = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    result = Outputs.of(Dense(), sparse)
    expected = fitted(ODIN(), dense).score(outputs(dense))
    torch.testing.assert_close(ODIN().fit(result, labels, mask).score(result), expected)


def test_high_temperature_does_not_drown_differences():
    x = torch.linspace(1.0, 1.2, 50).unsqueeze(1).repeat(1, 2)
    assert len(fitted(ODIN(epsilon=0.0), x).score(outputs(x)).unique()) == 50


@pytest.mark.parametrize("epsilon", [-0.1, math.inf, "much"])
def test_a_bad_step(epsilon):
    with pytest.raises(ValueError, match="'epsilon' must be >= 0"):
        ODIN(epsilon=epsilon)


@pytest.mark.parametrize("forward", [lambda model, data: torch.ones(3, 2), lambda model, data: data.x.detach()])
def test_a_model_that_lets_no_gradient_through(forward):
    graph = SimpleNamespace(x=torch.ones(3, 2), edge_index=NO_EDGES)
    result = Outputs.of(nn.Identity(), graph, forward=forward)
    labels, mask = torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"'model' must let gradients reach data.x .* use epsilon=0"):
        ODIN().fit(result, labels, mask).score(result)
    assert ODIN(epsilon=0).fit(result, labels, mask).score(result).shape == (3,)


@pytest.mark.parametrize(
    "name", ["gcn", "mlp", "gat", "mixhop", "graphsage", "jknet", "appnp", "sgc", "gin", "sgformer"]
)
def test_sparse_features_take_the_step_without_becoming_dense(name, monkeypatch):
    """The same logits as by the gradient of dense features."""
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(40, 200)
    x.scatter_(1, torch.randint(200, (40, 3), generator=generator), 1.0)
    data = SimpleNamespace(x=x, edge_index=torch.randint(40, (2, 90), generator=generator))
    torch.manual_seed(0)
    model = MODELS[name](200, 8, 3).double()
    data.x = data.x.double()
    seen = Outputs.of(model, data)
    assert perturbation.by_products(seen)
    method = ODIN(temperature=2.0, epsilon=0.01).fit(
        seen, torch.zeros(40, dtype=torch.int64), torch.ones(40, dtype=torch.bool)
    )
    monkeypatch.setattr(perturbation, "ENTRIES", 1400)  # seven rows at a time
    found = method.score(seen)
    monkeypatch.setattr(perturbation, "by_products", lambda outputs: False)
    expected = method.score(seen)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert (found - MSP().score(seen)).abs().max() > 1e-3


def test_somebodys_model_is_asked_with_dense_features():
    class Own(MODELS["gcn"]):
        def forward(self, x, edge_index):
            return super().forward(2 * x, edge_index)

    x = torch.zeros(30, 200)
    x[:, 3] = 1.0
    data = SimpleNamespace(x=x, edge_index=NO_EDGES)
    assert not perturbation.by_products(Outputs.of(Own(200, 8, 3), data))
    assert not perturbation.by_products(Outputs(x, data))
