from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear, relu

from gnnsafe.models import MLP


def reference(model, x, edge_index):
    embeddings = x
    for k, weight in enumerate(model.weights[:-1]):
        x = linear(x, weight.T, None if model.norms else model.biases[k])
        x = embeddings = relu(model.norms[k](x) if model.norms else x)
    return embeddings, linear(x, model.weights[-1].T, model.biases[-1])


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("num_layers", [2, 3])
def test_equal_to_torchs_linear(same, num_layers, batch_norm):
    same(lambda features: MLP(features, 8, 3, num_layers, batch_norm=batch_norm), reference)


def test_by_hand():
    model = MLP(1, 2, 1, batch_norm=False)
    model.weights[0].data, model.weights[1].data = torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0], [10.0]])
    model.biases[0].data, model.biases[1].data = torch.tensor([0.0, 1.0]), torch.tensor([0.5])
    logits = model(torch.tensor([[2.0], [-3.0]]), torch.tensor([[0], [1]]))
    assert logits.tolist() == [[2.5], [40.5]]  # relu(2, -2 + 1) and relu(-3, 3 + 1), times (1, 10), and a half


def test_edges_are_not_heard(directed):
    model = MLP(6, 8, 3).eval()
    alone = model(directed.x, torch.empty(2, 0, dtype=torch.int64))
    assert torch.equal(model(directed.x, directed.edge_index), alone)
