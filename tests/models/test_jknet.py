from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear, relu
from torch_geometric.nn import GCNConv, JumpingKnowledge

from gnnsafe.models import JKNet


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_equal_to_pyg(same, layer, num_layers, batch_norm):
    def reference(model, x, edge_index):
        depths = []
        for k, weight in enumerate(model.weights[:-1]):
            x = layer(GCNConv(*weight.shape, bias=False), x, edge_index, parameters={"lin.weight": weight.T})
            if k == num_layers - 1:
                x = x + model.biases[-2]
            else:
                x = relu(model.norms[k](x) if batch_norm else x + model.biases[k])
            depths.append(x)
        pooled = JumpingKnowledge("max")(depths)
        return pooled, linear(pooled, model.weights[-1].T, model.biases[-1])

    same(lambda features: JKNet(features, 8, 3, num_layers, batch_norm=batch_norm), reference)


def test_by_hand():
    """0 → 1: Â is 1, 0 | √½, ½. The first layer gives 1 and √½ + 3/2, the second 3 − 1 and 3 − √½ − (√½ + 3/2)/2.

    Without a ReLU after the last, −9 in place of 3 leaves the first layer's for both.
    """
    model = JKNet(1, 1, 1, batch_norm=False)
    for weight, value in zip(model.weights, (1.0, -1.0, 10.0), strict=True):
        weight.data.fill_(value)
    for bias, value in zip(model.biases, (0.0, 3.0, 1.0), strict=True):
        bias.data.fill_(value)
    logits = model(torch.tensor([[1.0], [3.0]]), torch.tensor([[0], [1]]))
    assert logits.flatten().tolist() == pytest.approx([21.0, 10 * (0.5**0.5 + 1.5) + 1])  # 0 from depth 2, 1 from 1
    model.biases[1].data.fill_(-9.0)
    logits = model(torch.tensor([[1.0], [3.0]]), torch.tensor([[0], [1]]))
    assert logits.flatten().tolist() == pytest.approx([11.0, 10 * (0.5**0.5 + 1.5) + 1])
