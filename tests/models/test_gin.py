from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import linear, relu
from torch_geometric.nn import GINConv

from gnnsafe.models import GIN


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_equal_to_pyg(same, num_layers, batch_norm):
    def block(model, x, k):
        return relu(model.norms[k](x) if model.norms else x + model.biases[k])

    def reference(model, x, edge_index):
        for first in range(0, len(model.weights), 2):
            summed = GINConv(nn.Identity())(x, edge_index)
            hidden = block(model, linear(summed, model.weights[first].T), first)
            x = linear(hidden, model.weights[first + 1].T)
            if first + 2 < len(model.weights):
                x = block(model, x, first + 1)
        return hidden, x + model.biases[-1]

    same(lambda features: GIN(features, 8, 3, num_layers, batch_norm=batch_norm), reference)


def test_by_hand():
    """0 → 1 twice, 1 → 1: sums are 1 and 2·1 + 3 + 3 = 8; relu keeps them in the first channel only."""
    model = GIN(1, 2, 1, 1, batch_norm=False)
    model.weights[0].data, model.weights[1].data = torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0], [3.0]])
    model.biases[1].data.fill_(0.5)
    logits = model(torch.tensor([[1.0], [3.0]]), torch.tensor([[0, 0, 1], [1, 1, 1]]))
    assert logits.flatten().tolist() == [2.5, 16.5]
