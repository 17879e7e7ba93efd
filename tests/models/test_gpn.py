from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import scipy.sparse as sp
import torch
from torch_geometric.nn import APPNP

from gnnsafe import Outputs, load_benchmark
from gnnsafe.models import GPN
from gnnsafe.prepared import prepare
from gnnsafe.sparse import Sparse


def plain(model: GPN, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
    """The same network of dense products, a flow for each class, and PyG's personalised PageRank."""
    z = model.latent(torch.relu(x @ model.weight + model.bias))
    densities = torch.stack([model.flows(z)[:, c] for c in range(len(model.class_shares))], dim=1).exp()
    evidence = densities * model.class_shares * (4 * math.pi) ** (z.shape[1] / 2)
    return torch.log(1 + APPNP(model.steps, model.teleport)(evidence, edge_index))


def bag_of_words(nodes: int = 5, words: int = 40) -> torch.Tensor:
    x = torch.zeros(nodes, words)
    return x.scatter_(1, torch.randint(words, (nodes, 2)), 1.0)


@pytest.mark.parametrize("features", ["dense", "sparse"])
@pytest.mark.parametrize("options", [{}, {"steps": 3, "teleport": 0.4, "latent_channels": 4, "flow_layers": 2}])
def test_equal_to_pyg(directed, features, options):
    torch.manual_seed(1)
    x = (directed.x if features == "dense" else bag_of_words()).double()
    model = GPN(x.shape[1], 8, 3, **options).double().eval()
    model.class_shares.copy_(torch.tensor([0.2, 0.5, 0.3]))
    torch.testing.assert_close(model(x, directed.edge_index), plain(model, x, directed.edge_index))


def test_csr_features_give_the_same(directed):
    for x in (torch.rand(5, 40), bag_of_words()):
        model, csr = GPN(40, 8, 3).eval(), Sparse(sp.csr_array(x.numpy())).csr
        torch.testing.assert_close(model(csr, directed.edge_index), model(x, directed.edge_index))


def test_sparse_features_stay_sparse_and_dense_ones_dense():
    edges, x = torch.empty(2, 0, dtype=torch.int64), bag_of_words()
    graph = prepare(SimpleNamespace(x=x, edge_index=edges))
    assert isinstance(graph.features, Sparse)
    assert graph.features is graph.features
    torch.testing.assert_close(graph.features @ torch.eye(40), x)
    dense = torch.rand(5, 4)
    assert torch.equal(prepare(SimpleNamespace(x=dense, edge_index=edges)).features, dense)


def test_without_edges_each_node_has_its_own_evidence(directed):
    model = GPN(6, 8, 3).eval()
    outputs = Outputs.of(model, directed)
    alone = outputs.without_edges
    assert outputs.embeddings.shape == (5, 16)
    own = (model.flows(outputs.embeddings) + math.log(1 / 3) + 8 * math.log(4 * math.pi)).exp()
    torch.testing.assert_close(alone.logits, torch.log1p(own))
    torch.testing.assert_close(outputs.logits[4], alone.logits[4])  # isolated
    assert not torch.allclose(outputs.logits[1], alone.logits[1])


def test_evidence_is_bounded_and_a_class_without_a_share_has_none(directed):
    model = GPN(6, 8, 3)
    model.class_shares.copy_(torch.tensor([0.0, 0.5, 0.5]))
    far = (1e4 * directed.x).requires_grad_()
    for x in (far, directed.x):
        log_alpha = model(x, directed.edge_index)
        assert torch.isfinite(log_alpha).all()
        assert (log_alpha >= 0).all()
        assert log_alpha[:, 0].max() < 1e-10
        log_alpha.sum().backward()
        assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_dropout_only_in_training(directed):
    model = GPN(6, 64, 3)
    assert not torch.equal(model(directed.x, directed.edge_index), model(directed.x, directed.edge_index))
    model.eval()
    assert torch.equal(model(directed.x, directed.edge_index), model(directed.x, directed.edge_index))


def test_reset_parameters_starts_over():
    model = GPN(6, 8, 3)
    with torch.no_grad():
        for value in model.state_dict().values():
            value.fill_(9.0)
    torch.manual_seed(0)
    model.reset_parameters()
    torch.manual_seed(0)
    fresh = GPN(6, 8, 3)
    torch.manual_seed(0)
    fresh.reset_parameters()
    for name, value in fresh.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


def test_gradients_reach_features_that_ask_for_them(directed):
    model = GPN(6, 8, 3, latent_channels=3, flow_layers=2, steps=2).double().eval()
    x = directed.x.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model(x, directed.edge_index), x)


def test_on_cora_the_first_layer_is_sparse(data_root):
    data = load_benchmark("cora", shift="label", root=data_root).id
    torch.manual_seed(0)
    model = GPN(data.num_features, 64, 7).eval()
    assert isinstance(model.prepare(prepare(data))[0], Sparse)
    expected = plain(model, data.x, data.edge_index)
    torch.testing.assert_close(model(data.x, data.edge_index), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 8, 3), {}, r"'in_channels' must be a whole number >= 1 \(got 0\)"),
        ((6, 8, 3), {"latent_channels": 0}, "'latent_channels' must be a whole number >= 1"),
        ((6, 8, 3), {"flow_layers": 0}, "'flow_layers' must be a whole number >= 1"),
        ((6, 8, 3), {"steps": -1}, "'steps' must be a whole number >= 0"),
        ((6, 8, 3), {"dropout": 1.0}, r"'dropout' must lie in \[0, 1\)"),
        ((6, 8, 3), {"teleport": 1.1}, r"'teleport' must lie in \[0, 1\]"),
    ],
)
def test_bad_settings(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        GPN(*arguments, **options)


@pytest.mark.parametrize(
    ("x", "edge_index", "message"),
    [
        (torch.rand(5, 7), None, r"'x' must have 6 features \(got 7\)"),
        (torch.rand(5), None, r"'x' must be a floating tensor of shape \[nodes, features\]"),
        (torch.rand(5, 6).double(), None, r"'x' must be torch.float32 as the model is \(got torch.float64\)"),
        (torch.full((5, 6), torch.nan), None, "'x' must be finite"),
        (torch.full((5, 6), torch.nan).requires_grad_(), None, "'x' must be finite"),
        ([[1.0] * 6], None, r"'x' must be a torch.Tensor \(got list\)"),
        (torch.rand(2, 6), None, "'edge_index' must hold node ids < 2"),
        (torch.rand(5, 6), [[0], [1]], "'edge_index' must be a torch.Tensor"),
    ],
)
def test_bad_graphs(directed, x, edge_index, message):
    with pytest.raises(ValueError, match=message):
        GPN(6, 8, 3)(x, directed.edge_index if edge_index is None else edge_index)
