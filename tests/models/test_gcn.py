from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import relu
from torch_geometric.nn import GCNConv

from gnnsafe.models import GCN
from gnnsafe.models.inputs import convolution_inputs
from gnnsafe.models.known import known_graph
from gnnsafe.sparse import Sparse


class PyG(nn.Module):
    """The same network of PyG's layers, with the weights of `model`."""

    def __init__(self, model: GCN):
        super().__init__()
        last = len(model.weights) - 1
        self.model, self.convs = model, nn.ModuleList()
        for weight in model.weights:
            conv = GCNConv(*weight.shape, bias=False)
            conv.lin.weight = nn.Parameter(weight.detach().T.clone())
            self.convs.append(conv)
        self.biases = [
            model.biases[-1 if k == last else k] if k == last or not model.norms else None for k in range(last + 1)
        ]

    def forward(self, x, edge_index):
        for k, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            x = x if self.biases[k] is None else x + self.biases[k]
            if k < len(self.convs) - 1:
                x = relu(self.model.norms[k](x) if self.model.norms else x)
        return x


def sparse(x: torch.Tensor) -> torch.Tensor:
    import scipy.sparse as sp

    return Sparse(sp.csr_array(x.numpy())).csr


def bag_of_words(nodes: int = 5, words: int = 40, per_node: int = 2) -> torch.Tensor:
    x = torch.zeros(nodes, words)
    x.scatter_(1, torch.randint(words, (nodes, per_node)), 1.0)
    return x


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("features", ["dense", "sparse"])
@pytest.mark.parametrize("training", [True, False])
def test_equal_to_pyg(directed, batch_norm, num_layers, features, training):
    torch.manual_seed(1)
    x = directed.x if features == "dense" else bag_of_words()
    model = GCN(x.shape[1], 8, 3, num_layers, batch_norm=batch_norm)
    with torch.no_grad():
        for bias in model.biases:
            bias.normal_()
    model.train(training)
    reference = PyG(model)
    logits, expected = model(x, directed.edge_index), reference(x, directed.edge_index)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    logits.square().sum().backward()
    expected.square().sum().backward()
    for weight, conv in zip(model.weights, reference.convs, strict=True):
        torch.testing.assert_close(weight.grad, conv.lin.weight.grad.T, atol=1e-4, rtol=1e-4)


def test_equal_to_pyg_in_double_precision(directed):
    model = GCN(6, 8, 3).double()
    logits = model(directed.x.double(), directed.edge_index)
    torch.testing.assert_close(logits, PyG(model)(directed.x.double(), directed.edge_index), atol=1e-12, rtol=0)


def test_real_cora_equals_pyg(data_root):
    from gnnsafe import load_benchmark

    data = load_benchmark("cora", shift="label", root=data_root).id
    torch.manual_seed(0)
    model = GCN(data.num_features, 64, 7).eval()
    torch.testing.assert_close(model(data.x, data.edge_index), PyG(model)(data.x, data.edge_index), atol=1e-5, rtol=0)
    inputs = convolution_inputs(known_graph(data.x, data.edge_index))
    assert isinstance(inputs.features, Sparse)
    assert not inputs.aggregated  # 236 k entries in ÂX against 49 k + 13 k apart


@pytest.mark.parametrize("make", [lambda: torch.rand(5, 40), bag_of_words])
def test_csr_features_give_the_same(directed, make):
    torch.manual_seed(0)
    x, model = make(), GCN(40, 8, 3)
    torch.testing.assert_close(model(sparse(x), directed.edge_index), model(x, directed.edge_index))


class TestTheOrderOfProducts:
    def test_dense_features_are_aggregated_once(self, directed):
        inputs = convolution_inputs(known_graph(directed.x, directed.edge_index))
        assert inputs.aggregated
        assert isinstance(inputs.features, torch.Tensor)

    def test_sparse_features_stay_sparse_where_aggregating_would_fill_them(self):
        hub = torch.stack([torch.arange(1, 200), torch.zeros(199, dtype=torch.int64)])
        x = bag_of_words(200, 500, 5)
        inputs = convolution_inputs(known_graph(x, torch.cat([hub, hub.flip(0), hub.roll(1, 1)], dim=1)))
        assert isinstance(inputs.features, Sparse)
        assert not inputs.aggregated

    def test_sparse_features_are_aggregated_where_that_is_cheaper(self):
        x = torch.zeros(30, 50)
        x[:, 0] = 1.0  # all nodes share their one word: ÂX is no fuller than X
        ring = torch.arange(30)
        inputs = convolution_inputs(known_graph(x, torch.stack([ring, ring.roll(1)])))
        assert inputs.aggregated
        assert isinstance(inputs.features, Sparse)
        model = GCN(50, 4, 2)
        edges = torch.stack([ring, ring.roll(1)])
        torch.testing.assert_close(model(x, edges), PyG(model)(x, edges), atol=1e-5, rtol=0)


def test_the_order_is_chosen_by_the_count_of_all_rows_not_of_the_sample():
    """3,000 nodes, of which 1,000 are looked at: ÂX has 3 entries a row against 1 + 3 apart, so it is aggregated."""
    x = torch.zeros(3000, 6000)
    x[torch.arange(3000), torch.arange(3000)] = 1.0
    ring = torch.arange(3000)
    edges = torch.stack([torch.cat([ring, ring]), torch.cat([ring.roll(1), ring.roll(-1)])])
    assert convolution_inputs(known_graph(x, edges)).aggregated
    x[torch.arange(3000), torch.arange(3000) + 3000] = 1.0
    x[torch.arange(3000), (torch.arange(3000) + 1500) % 3000] = 1.0  # 9 entries a row against 3 + 3
    assert not convolution_inputs(known_graph(x, edges)).aggregated


class TestNeverStale:
    @pytest.fixture
    def model(self) -> GCN:
        torch.manual_seed(0)
        return GCN(6, 8, 3).eval()

    def fresh(self, model, x, edge_index):
        return PyG(model)(x.clone(), edge_index.clone())

    @pytest.mark.parametrize("hidden_from_torch", [False, True])
    @pytest.mark.parametrize(("name", "place", "value"), [("edge_index", (1, 0), 4), ("x", (0, 0), 9.0)])
    def test_a_graph_changed_in_place(self, model, directed, name, place, value, hidden_from_torch):
        before = model(directed.x, directed.edge_index)
        tensor = getattr(directed, name)
        (tensor.numpy() if hidden_from_torch else tensor)[place] = value
        after = model(directed.x, directed.edge_index)
        assert not torch.allclose(before, after)
        torch.testing.assert_close(after, self.fresh(model, directed.x, directed.edge_index), atol=1e-5, rtol=0)

    def test_more_nodes_with_the_same_edges(self, model, directed):
        model(directed.x, directed.edge_index)
        assert len(model(torch.rand(9, 6), directed.edge_index)) == 9

    def test_weights_changed_in_place(self, model, directed):
        before = model(directed.x, directed.edge_index)
        model.weights[0].data *= 2.0
        assert not torch.allclose(before, model(directed.x, directed.edge_index))


def test_gradients_reach_features_that_ask_for_them(directed):
    model = GCN(6, 8, 3).double().eval()
    x = directed.x.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model(x, directed.edge_index), x)


@pytest.mark.parametrize("make", [lambda: torch.rand(5, 40), bag_of_words])
def test_gradients_reach_the_same_features_again_and_again(directed, make):
    model, x = GCN(40, 8, 3).eval(), make().requires_grad_()
    for _ in range(2):
        x.grad = None
        model(x, directed.edge_index).square().sum().backward()
        assert x.grad.abs().sum() > 0


def test_dropout_only_in_training(directed):
    model = GCN(6, 64, 3, dropout=0.5)
    assert not torch.equal(model(directed.x, directed.edge_index), model(directed.x, directed.edge_index))
    model.eval()
    assert torch.equal(model(directed.x, directed.edge_index), model(directed.x, directed.edge_index))


def test_no_bias_before_batch_norm():
    assert [tuple(b.shape) for b in GCN(6, 8, 3, 3).biases] == [(3,)]
    assert [tuple(b.shape) for b in GCN(6, 8, 3, 3, batch_norm=False).biases] == [(8,), (8,), (3,)]


def test_reset_parameters_starts_over(directed):
    model = GCN(6, 8, 3)
    for _ in range(3):
        model(directed.x, directed.edge_index)
    torch.manual_seed(0)
    model.reset_parameters()
    torch.manual_seed(0)
    fresh = GCN(6, 8, 3)
    torch.manual_seed(0)
    fresh.reset_parameters()
    for name, value in fresh.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 8, 3), {}, r"'in_channels' must be a whole number >= 1 \(got 0\)"),
        ((6, 8.5, 3), {}, r"'hidden_channels' must be a whole number >= 1"),
        ((6, 8, -3), {}, r"'out_channels' must be"),
        ((6, 8, 3, 0), {}, r"'num_layers' must be"),
        ((6, 8, 3), {"dropout": 1.0}, r"'dropout' must lie in \[0, 1\)"),
    ],
)
def test_bad_settings(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        GCN(*arguments, **options)


@pytest.mark.parametrize(
    ("x", "edge_index", "message"),
    [
        (torch.rand(5, 7), None, r"'x' must have 6 features \(got 7\)"),
        (
            torch.rand(5),
            None,
            r"'x' must be a floating tensor of shape \[nodes, features\] \(got torch.float32 \[5\]\)",
        ),
        (
            torch.rand(5, 6).double(),
            None,
            r"'x' must be torch.float32 as the model is \(got torch.float64\); call x.to",
        ),
        (torch.rand(5, 6).to_sparse(), None, r"'x' must be dense or torch.sparse_csr"),
        (torch.full((5, 6), torch.nan).requires_grad_(), None, r"'x' must be finite"),
        (torch.full((5, 6), torch.nan), None, r"'x' must be finite"),
        ([[1.0] * 6], None, r"'x' must be a torch.Tensor \(got list\)"),
        (torch.rand(2, 6), None, r"'edge_index' must hold node ids < 2"),
        (torch.rand(5, 6), [[0], [1]], r"'edge_index' must be a torch.Tensor"),
        (torch.rand(5, 6), torch.eye(2).long().to_sparse(), r"'edge_index' must be dense \(got torch.sparse_coo\)"),
    ],
)
def test_bad_graphs(directed, x, edge_index, message):
    with pytest.raises(ValueError, match=message):
        GCN(6, 8, 3)(x, directed.edge_index if edge_index is None else edge_index)


class TestFeaturesNeitherSparseNorFull:
    @pytest.fixture
    def x(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.rand(5, 40, generator=generator) * (torch.rand(5, 40, generator=generator) < 0.3)

    def test_both_forms_give_the_same(self, directed, x):
        model = GCN(40, 8, 3).eval()
        inputs = convolution_inputs(known_graph(x, directed.edge_index))
        assert inputs.aggregated
        assert inputs.bag is not None
        with torch.no_grad():
            quick = model(x, directed.edge_index)
        torch.testing.assert_close(quick, model(x, directed.edge_index).detach(), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(quick, PyG(model)(x, directed.edge_index).detach(), atol=1e-5, rtol=0)

    def test_full_ones_and_those_of_double_precision_have_one_form(self, directed, x):
        assert convolution_inputs(known_graph(directed.x, directed.edge_index)).bag is None
        assert convolution_inputs(known_graph(x.double(), directed.edge_index)).bag is None
        assert convolution_inputs(known_graph(x, directed.edge_index), hops=2).bag is None
