from __future__ import annotations

import pytest
import torch
from torch.nn.functional import relu
from torch_geometric.nn import MixHopConv

from gnnsafe import Outputs
from gnnsafe.models import MixHop
from gnnsafe.prepared import prepare
from gnnsafe.sparse import Sparse


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize(("num_layers", "hops"), [(2, 2), (3, 1), (2, 3)])
def test_equal_to_pyg(same, layer, num_layers, hops, batch_norm):
    def reference(model, x, edge_index):
        for k, weight in enumerate(model.weights):
            channels = weight.shape[1] // (hops + 1)
            conv = MixHopConv(weight.shape[0], channels, powers=list(range(hops + 1)))
            matrices = weight.split(channels, dim=1)
            parameters = {f"lins.{power}.weight": matrix.T for power, matrix in enumerate(matrices)}
            last = k == len(model.weights) - 1
            bias = model.biases[-1 if last else k] if last or not model.norms else torch.zeros_like(weight[0])
            embeddings = x
            x = layer(conv, x, edge_index, parameters={**parameters, "bias": bias})
            if not last:
                x = relu(model.norms[k](x) if model.norms else x)
        return embeddings, x @ model.head

    same(lambda features: MixHop(features, 8, 3, num_layers, hops=hops, batch_norm=batch_norm), reference)


def test_by_hand():
    """0 → 1: Â is 1, 0 | √½, ½; x = 1, 3 becomes 1, √½ + 3/2 and then 1, √½ + (√½ + 3/2)/2."""
    model = MixHop(1, 1, 1, 1)
    model.weights[0].data, model.head.data = torch.tensor([[1.0, 10.0, 100.0]]), torch.ones(3, 1)
    logits = model(torch.tensor([[1.0], [3.0]]), torch.tensor([[0], [1]]))
    once = 0.5**0.5 + 1.5
    assert logits.flatten().tolist() == pytest.approx([111.0, 3 + 10 * once + 100 * (0.5**0.5 + once / 2)])


def test_all_powers_of_dense_features_are_made_ready(directed):
    model = MixHop(6, 8, 3)
    inputs = model.prepare(prepare(directed))
    assert [hop.aggregated for hop in inputs] == [0, 1, 2]
    adjacency = inputs[0].adjacency.csr.to_dense()
    torch.testing.assert_close(inputs[2].features, adjacency @ adjacency @ directed.x)


def test_sparse_features_are_kept_once(words):
    inputs = MixHop(200, 8, 3).prepare(prepare(words))
    assert [hop.aggregated for hop in inputs] == [0, 0, 0]
    assert isinstance(inputs[0].features, Sparse)
    assert inputs[2].features is inputs[1].features is inputs[0].features


def test_the_embedding_is_that_of_all_hops(directed):
    assert Outputs.of(MixHop(6, 8, 3), directed).embeddings.shape == (5, 24)


def test_bad_hops():
    with pytest.raises(ValueError, match=r"'hops' must be a whole number >= 1 \(got 0\)"):
        MixHop(6, 8, 3, hops=0)
