"""What every method must keep; it runs over the METHODS table, so a new line there is tested by itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gnnsafe import Detector, Outputs
from gnnsafe.errors import NotFittedError
from gnnsafe.methods import METHODS, Method

everyone = pytest.mark.parametrize("name", METHODS)


class Planted(nn.Module):
    """Sure of the first half of the nodes, at a loss over the second; what a node hears has a small say."""

    def __init__(self):
        super().__init__()
        self.weight, self.dropout, self.penultimate = nn.Parameter(torch.ones(1)), nn.Dropout(0.5), Penultimate()

    def forward(self, x, edge_index):
        heard = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return self.dropout(self.weight * self.penultimate(x + 0.1 * heard))


@pytest.fixture
def planted() -> SimpleNamespace:
    """40 ID nodes with one large logit, 40 OOD nodes with none, edges (directed, a ring) within each half."""
    torch.manual_seed(0)
    x = 0.5 * torch.rand(80, 4)
    y = torch.arange(80) % 4
    x[torch.arange(40), y[:40]] += 6.0
    ring = torch.arange(40)
    ring = torch.stack([ring, (ring + 1) % 40])
    train_mask = torch.arange(80) < 20
    return SimpleNamespace(x=x, edge_index=torch.cat([ring, ring + 40], dim=1), y=y, train_mask=train_mask)


def scores(name: str, data, model: nn.Module | None = None) -> torch.Tensor:
    return Detector(model or Planted(), METHODS[name]()).fit(data).score(data)


@everyone
def test_one_float32_score_per_node(name, planted):
    result = scores(name, planted)
    assert result.shape == (80,)
    assert result.dtype == torch.float32
    assert torch.isfinite(result).all()
    assert not result.requires_grad


@everyone
def test_float64_logits_give_float32_scores(name, planted):
    planted.x = planted.x.double()
    assert scores(name, planted).dtype == torch.float32


@everyone
def test_planted_ood_nodes_score_higher(name, planted):
    result = scores(name, planted)
    assert result[40:].min() > result[:40].max()


@everyone
def test_the_model_is_left_as_it_was_found(name, planted):
    model = Planted().train()
    scores(name, planted, model)
    assert model.training
    assert model.dropout.training
    assert model.weight.requires_grad
    assert model.weight.grad is None
    assert torch.is_grad_enabled()


@everyone
def test_it_is_deterministic(name, planted):
    assert torch.equal(scores(name, planted), scores(name, planted))


@everyone
def test_a_node_scores_the_same_whatever_order_the_nodes_come_in(name, planted):
    order = torch.randperm(80)
    place = torch.argsort(order)
    shuffled = SimpleNamespace(
        x=planted.x[order],
        edge_index=place[planted.edge_index].flip(1),
        y=planted.y[order],
        train_mask=planted.train_mask[order],
    )
    torch.testing.assert_close(scores(name, shuffled), scores(name, planted)[order])


@everyone
def test_a_graph_without_edges_and_one_of_a_single_node(name, planted):
    planted.edge_index = torch.empty(2, 0, dtype=torch.int64)
    assert torch.isfinite(scores(name, planted)).all()
    alone = SimpleNamespace(x=planted.x[:1], edge_index=planted.edge_index)
    assert Detector(Planted(), METHODS[name]()).fit(planted).score(alone).shape == (1,)


@everyone
def test_repr_is_the_record_of_the_experiment(name):
    import gnnsafe.methods

    method = METHODS[name]()
    assert eval(repr(method), vars(gnnsafe.methods)) == method


@everyone
def test_fit_returns_the_method_and_checks_the_mask(name, planted):
    method = METHODS[name]()
    outputs = Outputs.of(Planted(), planted)
    assert method.fit(outputs, planted.y, planted.train_mask) is method
    for bad in (torch.zeros(80, dtype=torch.bool), torch.arange(80), torch.ones(3, dtype=torch.bool)):
        with pytest.raises(ValueError, match="'mask' must"):
            method.fit(outputs, planted.y, bad)
    with pytest.raises(ValueError, match="'y' must"):
        method.fit(outputs, None, planted.train_mask)


@everyone
def test_a_detector_that_was_not_fitted_says_so(name, planted):
    with pytest.raises(NotFittedError, match="is not fitted; call fit"):
        Detector(Planted(), METHODS[name]()).score(planted)


@everyone
def test_its_first_line_says_what_it_is(name):
    assert issubclass(METHODS[name], Method)
    first = METHODS[name].__doc__.splitlines()[0]
    assert "20" in first  # the reference's year
    assert first.endswith(".")
