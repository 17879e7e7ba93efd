from __future__ import annotations

import pytest
import torch
from torch import nn

from gnnsafe import Outputs
from gnnsafe.outputs import evaluating


class Model(nn.Module):
    """Logits that tell whether the model was in evaluation mode without gradients."""

    def __init__(self, shape=None):
        super().__init__()
        self.dropout, self.frozen = nn.Dropout(0.5), nn.BatchNorm1d(1).eval()
        self.shape, self.calls = shape, 0

    def forward(self, x, edge_index):
        self.calls += 1
        assert not self.training
        assert not self.dropout.training
        assert not torch.is_grad_enabled()
        return torch.zeros(self.shape or (len(x), 2))


def test_the_model_runs_once_and_is_left_as_it_was_found(directed):
    model = Model()
    model.train()
    model.frozen.eval()
    outputs = Outputs.of(model, directed)
    assert outputs.logits.shape == (5, 2)
    assert outputs.graph is directed
    assert model.calls == 1
    assert model.training
    assert model.dropout.training
    assert not model.frozen.training
    assert torch.is_grad_enabled()


def test_modes_come_back_after_an_error():
    model = nn.Dropout().train()
    with pytest.raises(KeyError), evaluating(model):
        raise KeyError
    assert model.training


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Model((4, 2)), r"'logits' must have one row for each of 5 nodes \(got 4\)"),
        (Model((5,)), r"'logits' must be a floating tensor of shape \[nodes, classes\]"),
    ],
)
def test_bad_outputs(directed, model, message):
    with pytest.raises(ValueError, match=message):
        Outputs.of(model, directed)


def test_a_model_that_returns_no_tensor(directed):
    class Tuple(nn.Module):
        def forward(self, x, edge_index):
            return x, x

    with pytest.raises(ValueError, match=r"'model\(x, edge_index\)' must be a torch.Tensor \(got tuple\)"):
        Outputs.of(Tuple(), directed)


def test_a_model_that_diverged(directed):
    class Nan(nn.Module):
        def forward(self, x, edge_index):
            return torch.full((len(x), 2), float("nan"))

    with pytest.raises(ValueError, match="'logits' must be finite"):
        Outputs.of(Nan(), directed)
