from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import elu
from torch_geometric.nn import GATConv

from gnnsafe import Outputs
from gnnsafe.edges import Edges
from gnnsafe.models import GAT


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize(("num_layers", "heads"), [(2, 1), (2, 2), (3, 4)])
def test_equal_to_pyg(same, layer, num_layers, heads, batch_norm):
    def reference(model, x, edge_index):
        for k, weight in enumerate(model.weights):
            last = k == len(model.weights) - 1
            shape = model.sources[k].shape
            conv = GATConv(weight.shape[0], shape[1], heads=shape[0], bias=False)
            parameters = {"lin.weight": weight.T, "att_src": model.sources[k][None], "att_dst": model.targets[k][None]}
            embeddings = x
            x = layer(conv, x, edge_index, parameters=parameters)
            if not last:
                x = elu(model.norms[k](x) if model.norms else x + model.biases[k])
        return embeddings, x + model.biases[-1]

    same(lambda features: GAT(features, 8, 3, num_layers, heads=heads, batch_norm=batch_norm), reference)


@pytest.mark.parametrize(("source", "target", "expected"), [
    (1.0, 0.0, (math.e + 3 * math.e**3) / (math.e + math.e**3)),
    (-1.0, 0.0, (math.exp(-0.2) + 3 * math.exp(-0.6)) / (math.exp(-0.2) + math.exp(-0.6))),  # LeakyReLU
    (-1.0, 2 / 3, (math.e + 3 * math.exp(-0.2)) / (math.e + math.exp(-0.2))),  # 2 − 1 and 2 − 3
])  # fmt: skip
def test_by_hand(source, target, expected):
    """0 → 1 with features 1 and 3: 0 hears itself, 1 hears both."""
    model = GAT(1, 1, 1, 1)
    for parameter, value in ((model.weights, 1.0), (model.sources, source), (model.targets, target)):
        parameter[0].data.fill_(value)
    logits = model(torch.tensor([[1.0], [3.0]]), torch.tensor([[0], [1]]))
    assert logits.flatten().tolist() == pytest.approx([1.0, expected])


def test_large_scores_do_not_overflow(directed):
    model = GAT(6, 8, 3).eval()
    with torch.no_grad():
        model.sources[0] *= 1e4
        model.targets[0] *= 1e4
    assert model(directed.x, directed.edge_index).isfinite().all()


def test_the_embedding_is_that_of_all_heads(directed):
    assert Outputs.of(GAT(6, 8, 3, heads=4), directed).embeddings.shape == (5, 32)


def test_the_pattern_has_every_edge_once_for_each_head(directed):
    pattern = Edges(directed.edge_index, 5).attention(3)
    kept = [(0, 1), (1, 2), (2, 0), (3, 2), *((node, node) for node in range(5))]
    expected = sorted((3 * target + head, 3 * source + head) for source, target in kept for head in range(3))
    assert list(zip(pattern.rows.tolist(), pattern.columns.tolist(), strict=True)) == expected
    assert [pattern.times[expected.index((3 + head, head))].item() for head in range(3)] == [
        2,
        2,
        2,
    ]  # 0→1, given twice


def test_more_repeated_edges_than_pairs_of_nodes():
    """More edges than a matrix of the nodes has places: they are counted, and gradients pass them."""
    x, model = torch.randn(3, 6, requires_grad=True), GAT(6, 8, 3)
    edges = torch.tensor([[0, 1, 1], [1, 2, 2]]).repeat(1, 50)
    once = torch.tensor([[0, 1], [1, 2]])
    model.eval()(x, edges).sum().backward()
    assert torch.isfinite(x.grad).all()
    torch.testing.assert_close(model(x, torch.cat([once] * 3, dim=1)), model(x, once.repeat_interleave(3, dim=1)))


def test_bad_heads():
    with pytest.raises(ValueError, match=r"'heads' must be a whole number >= 1 \(got 0\)"):
        GAT(6, 8, 3, heads=0)
