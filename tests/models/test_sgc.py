from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import SGConv

from gnnsafe import Outputs
from gnnsafe.models import SGC
from gnnsafe.models.inputs import convolution_inputs
from gnnsafe.models.known import known_graph
from gnnsafe.sparse import Sparse


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_equal_to_pyg(same, layer, hops):
    def reference(model, x, edge_index):
        parameters = {"lin.weight": model.weights[0].T, "lin.bias": model.biases[0]}
        logits = layer(SGConv(*model.weights[0].shape, K=hops), x, edge_index, parameters=parameters)
        return logits, logits

    same(lambda features: SGC(features, 8, 3, hops), reference)


def test_by_hand():
    """0 → 1: Â is 1, 0 | √½, ½; x = 1, 3 becomes 1, √½ + 3/2 and then 1, √½ + (√½ + 3/2)/2."""
    model = SGC(1, 8, 1)
    model.weights[0].data.fill_(2.0)
    model.biases[0].data.fill_(0.5)
    logits = model(torch.tensor([[1.0], [3.0]]), torch.tensor([[0], [1]]))
    assert logits.flatten().tolist() == pytest.approx([2.5, 2 * (0.5**0.5 + (0.5**0.5 + 1.5) / 2) + 0.5])


def test_its_embedding_is_its_logits(directed):
    outputs = Outputs.of(SGC(6, 8, 3), directed)
    assert torch.equal(outputs.embeddings, outputs.logits)


def test_sparse_features_are_aggregated_as_far_as_that_is_cheaper():
    """On a directed ring each hop adds a word: 2 entries a row against 1 + 2 apart, 3 against 2 + 2, 4 against 3 + 2"""
    ring = torch.arange(50)
    x, edges = torch.eye(50), torch.stack([ring, ring.roll(1)])
    inputs = convolution_inputs(known_graph(x, edges), hops=3)
    assert isinstance(inputs.features, Sparse)
    assert (inputs.aggregated, inputs.hops) == (3, 3)
    x[ring, ring.roll(25)] = 1.0  # 4 against 2 + 2
    assert convolution_inputs(known_graph(x, edges), hops=3).aggregated == 0
