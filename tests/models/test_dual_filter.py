from __future__ import annotations

import torch
from torch_geometric.nn import GCNConv

from gnnsafe.models import DualFilter


def test_equal_to_two_convolutions_side_by_side(same, layer):
    """The high-pass branch is a linear layer less PyG's convolution with the same weights."""

    def reference(model, x, edge_index):
        hidden = x
        for index in range(model.num_layers):
            low, high = model.weights[index].chunk(2, dim=1)
            conv = GCNConv(hidden.shape[1], low.shape[1], bias=False).to(x.dtype)
            heard = [layer(conv, hidden, edge_index, parameters={"lin.weight": weight.T}) for weight in (low, high)]
            both = torch.cat([heard[0], hidden @ high - heard[1]], dim=1)
            active = model.norms[index](both).relu()
            hidden = active if index == 0 else hidden + active
        return hidden, hidden @ model.head + model.biases[-1]

    same(lambda features: DualFilter(features, 8, 3, num_layers=3), reference)


def test_by_hand():
    """Two nodes, 0 → 1, one channel per branch: Â of node 1 is ½ of itself and 1/√2 of node 0; 0 hears itself alone."""
    model = DualFilter(1, 2, 1, num_layers=1, batch_norm=False).eval()
    model.weights[0].data, model.head.data = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0], [10.0]])
    logits = model(torch.tensor([[2.0], [8.0]]), torch.tensor([[0], [1]]))
    heard = 4 + 2**0.5
    assert torch.allclose(logits.squeeze(), torch.tensor([2.0 + 0.0, heard + 10 * (8 - heard)]))
