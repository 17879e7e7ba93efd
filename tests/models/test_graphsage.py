from __future__ import annotations

import pytest
import torch
from torch.nn.functional import relu
from torch_geometric.nn import SAGEConv

from gnnsafe.models import GraphSAGE


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("num_layers", [2, 3])
def test_equal_to_pyg(same, layer, num_layers, batch_norm):
    def reference(model, x, edge_index):
        for k, weight in enumerate(model.weights):
            last, (neighbours, own) = k == len(model.weights) - 1, weight.chunk(2)
            bias = model.biases[-1 if last else k] if last or not model.norms else torch.zeros_like(weight[0])
            parameters = {"lin_l.weight": neighbours.T, "lin_l.bias": bias, "lin_r.weight": own.T}
            embeddings = x
            x = layer(SAGEConv(*own.shape), x, edge_index, parameters=parameters)
            if not last:
                x = relu(model.norms[k](x) if model.norms else x)
        return embeddings, x

    same(lambda features: GraphSAGE(features, 8, 3, num_layers, batch_norm=batch_norm), reference)


def test_by_hand():
    """0 → 2 twice, 1 → 2: node 2 hears (2·1 + 4)/3 = 2, the others nothing."""
    model = GraphSAGE(1, 1, 1, 1)
    model.weights[0].data = torch.tensor([[10.0], [1.0]])
    logits = model(torch.tensor([[1.0], [4.0], [7.0]]), torch.tensor([[0, 0, 1], [2, 2, 2]]))
    assert logits.flatten().tolist() == pytest.approx([1.0, 4.0, 27.0])
