"""The fast passes of a two-layer GCN against the general ones, which `test_gcn` holds against PyG."""

from __future__ import annotations

import copy
import gc
import weakref
from types import SimpleNamespace

import pytest
import scipy.sparse as sp
import torch
from torch import nn

from gnnsafe import CrossEntropy, EnergyMargin, OutlierExposure, train
from gnnsafe.edges import Edges
from gnnsafe.models import GCN, inputs, passes, two_layers
from gnnsafe.models.known import known_graph
from gnnsafe.models.passes import StagedPasses
from gnnsafe.models.two_layers import AllRows, FewRows, LastLayer, TwoLayers, suits
from gnnsafe.prepared import prepare
from gnnsafe.sparse import Sparse
from gnnsafe.training import BoundedEnergy

# Of logits, running statistics and gradients relative to the largest, which five nodes in BatchNorm make large.
LIMITS = {torch.float32: 1e-5, torch.float64: 1e-10}


def wide(nodes: int = 300) -> SimpleNamespace:
    """A directed graph with few features and edges: the rows of a few nodes need a small part of it.

    Its last nodes are isolated, its first have loops, and edges are repeated.
    """
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes - 20, (2, 400), generator=generator)
    loops = torch.arange(10).expand(2, -1)
    x = 3.0 + torch.randn(nodes, 4, generator=generator) * torch.tensor([1.0, 5.0, 0.1, 2.0])
    return SimpleNamespace(x=x, edge_index=torch.cat([edges, edges[:, :30], loops, loops], dim=1), num_nodes=nodes)


@pytest.fixture(params=["directed", "words", "few rows"])
def graph(request, directed, words) -> SimpleNamespace:
    return {"directed": directed, "words": words, "few rows": wide()}[request.param]


def rows(graph: SimpleNamespace) -> tuple[torch.Tensor, torch.Tensor]:
    last = graph.num_nodes - 1  # an isolated node of two of the graphs
    return torch.tensor([0, 2, last]), torch.tensor([1, 2, 3])


def network(features: int, dtype: torch.dtype) -> GCN:
    torch.manual_seed(1)
    model = GCN(features, 8, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # a bias of 0 would hide where it is added
    return model.to(dtype)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, limit: float) -> None:
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual / scale, expected / scale, atol=limit, rtol=0)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dtype", LIMITS)
def test_equal_to_the_general_passes(graph, dtype, layout):
    x, limit = graph.x.to(dtype), LIMITS[dtype]
    if layout == "csr":
        x = Sparse(sp.csr_array(x.numpy())).csr
    graph = SimpleNamespace(x=x, edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    fast = network(x.shape[1], dtype)
    general = copy.deepcopy(fast)
    pairs = [
        (fast, TwoLayers(fast, prepare(graph), *rows(graph))),
        (general, StagedPasses(general, prepare(graph), *rows(graph))),
    ]
    for turn in range(3):
        results = []
        for model, both in pairs:
            model.train()
            logits = both.training()
            direction = torch.randn(logits.shape, generator=torch.Generator().manual_seed(turn)).to(dtype)
            gradients = torch.autograd.grad((logits * direction).sum(), list(model.parameters()))
            with torch.no_grad():
                for parameter, step in zip(model.parameters(), gradients, strict=True):
                    parameter.sub_(0.01 * step.clamp(-1, 1))
            model.eval()
            results.append([logits, both.validation(), *model.buffers(), *gradients])
        for actual, expected in zip(*results, strict=True):
            assert_close(actual, expected, limit)
        fast.load_state_dict(general.state_dict())  # rounding does not add up from turn to turn
        pairs[0][1].stem = None
    assert not results[0][1].requires_grad


@pytest.mark.parametrize("dtype", LIMITS)
def test_equal_to_the_general_passes_where_nearly_all_rows_are_read(dtype):
    graph, models = wide(), [network(4, dtype) for _ in range(2)]
    graph.x = graph.x.to(dtype)
    read = torch.arange(graph.num_nodes - 9), torch.tensor([299, 5, 7])
    pairs = TwoLayers(models[0], prepare(graph), *read), StagedPasses(models[1], prepare(graph), *read)
    assert len(pairs[0].rows.features) == 300
    results = []
    for model, both in zip(models, pairs, strict=True):
        logits = both.training()
        gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
        results.append([logits, *gradients, both.validation(), *model.buffers()])
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, LIMITS[dtype])


def test_the_route_is_the_cheaper_one(directed, words):
    model = network(4, torch.float32)
    graph = prepare(wide())
    assert isinstance(TwoLayers(model, prepare(graph), *rows(graph)).rows, FewRows)
    unvalidated = TwoLayers(model, prepare(graph), rows(graph)[0], torch.empty(0, dtype=torch.int64))  # as exposure is
    assert isinstance(unvalidated.rows, FewRows)
    assert unvalidated.training().shape == (3, 3)
    everyone = torch.arange(graph.num_nodes)
    read = TwoLayers(model, prepare(graph), everyone[:-9], everyone[:5]).rows
    assert isinstance(read, FewRows)  # their covariance is small
    assert read.features is model.prepare(graph).features  # nearly all rows: no copy of them
    for other in (directed, words):  # more features than rows to save; sparse features
        assert isinstance(
            TwoLayers(network(other.x.shape[1], torch.float32), prepare(other), *rows(other)).rows, AllRows
        )


@pytest.mark.parametrize("few", [True, False])
def test_the_last_layer_takes_the_shorter_order(few):
    generator = torch.Generator().manual_seed(0)
    dense = torch.rand(3 if few else 9, 9, generator=generator, dtype=torch.float64)
    hidden, weight = (torch.randn(size, generator=generator, dtype=torch.float64) for size in ((9, 5), (5, 4)))
    gradient = torch.randn(len(dense), 4, generator=generator, dtype=torch.float64)
    layer = LastLayer(sp.csr_array(dense.numpy()), 5, 4)
    # 27 entries · (5 − 4) columns more to hear for (9 − 3) · 5 · 4 multiplications fewer; 81 for none
    assert layer.hears_first is few
    logits, kept = layer(hidden, weight)
    back, last = layer.back(gradient, kept, weight)
    torch.testing.assert_close(logits, dense @ hidden @ weight)
    torch.testing.assert_close(back(slice(1, 3)), (dense.T @ gradient @ weight.T)[1:3])
    torch.testing.assert_close(last, hidden.T @ dense.T @ gradient)


def test_blocks_of_rows_add_up(monkeypatch):
    whole, parts = (network(4, torch.float64) for _ in range(2))
    graph = wide()
    graph.x = graph.x.double()
    everyone = torch.arange(graph.num_nodes)
    results = []
    for model, size in ((whole, 1000), (parts, 7)):
        monkeypatch.setattr(two_layers, "BLOCK", size)
        both = TwoLayers(model, prepare(graph), everyone, torch.tensor([1, 2, 3]))
        logits = both.training()
        gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
        results.append([logits, *gradients, both.validation()])
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, 1e-12)


def test_long_aggregated_rows_begin_with_a_line_of_the_cache(directed):
    wide = torch.rand(5, 130)
    features = inputs.convolution_inputs(known_graph(wide, directed.edge_index)).features
    assert (features.shape, features.stride()) == ((5, 130), (144, 1))
    torch.testing.assert_close(features, Edges(directed.edge_index, 5).convolution() @ wide)
    assert inputs.convolution_inputs(known_graph(directed.x, directed.edge_index)).features.is_contiguous()


def test_variances_that_cancel_are_not_rounding():
    """Two features that hardly differ, weighted against each other: in float32 their covariance is noise."""
    generator = torch.Generator().manual_seed(0)
    both = 1e4 * torch.randn(400, 1, generator=generator)
    x = torch.cat([both, both + torch.randn(400, 1, generator=generator)], dim=1)
    graph = SimpleNamespace(x=x, edge_index=torch.randint(0, 400, (2, 800), generator=generator), num_nodes=400)
    fast = GCN(2, 64, 3)
    with torch.no_grad():
        fast.weights[0][1].copy_(-fast.weights[0][0])
    exact = copy.deepcopy(fast).double()
    everyone = torch.arange(400)
    pair = TwoLayers(fast, prepare(graph), everyone, everyone[:0])
    assert isinstance(pair.rows, FewRows)
    pair.training()
    double = SimpleNamespace(x=x.double(), edge_index=graph.edge_index)
    StagedPasses(exact, prepare(double), everyone, everyone[:0]).training()
    expected = exact.norms[0].running_var
    assert (fast.norms[0].running_var.double() / expected - 1).abs().max() < 1e-3


def test_the_way_back_comes_before_the_next_pass():
    graph, model = wide(), network(4, torch.float32)
    both = TwoLayers(model, prepare(graph), *rows(graph))
    assert isinstance(both.rows, FewRows)
    logits = both.training()
    both.validation()  # writes where the way back would read
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        logits.sum().backward()


def test_few_rows_are_few():
    graph, model = wide(), network(4, torch.float32)
    read = TwoLayers(model, prepare(graph), torch.tensor([299]), torch.tensor([298])).rows
    assert read.stem(model.weights[0].detach()).shape == (2, 8)  # both are isolated: each hears itself alone
    assert (read.for_training, read.for_validation) == (slice(0, 1), slice(1, None))


def test_the_same_weights_share_their_first_layer(directed, monkeypatch):
    calls = []
    monkeypatch.setattr(AllRows, "stem", lambda self, weight: calls.append(1) or self.inputs.convolve(weight))
    both = TwoLayers(network(6, torch.float32), prepare(directed), *rows(directed))
    both.training()
    both.validation()
    both.training()
    assert len(calls) == 2


def test_moments_by_hand():
    convolved = inputs.ConvolutionInputs(
        Sparse(sp.eye_array(2, format="csr")), torch.tensor([[1.0, 2.0], [3.0, 8.0]]), 1
    )
    mean, covariance = convolved.moments
    assert mean.tolist() == [2.0, 5.0]
    assert covariance.tolist() == [[1.0, 3.0], [3.0, 9.0]]


OBJECTIVES = [
    CrossEntropy(),
    EnergyMargin(-5.0, -1.0, 0.1),
    EnergyMargin(-5.0, -1.0, 0.1, steps=0),
    EnergyMargin(-5.0, -1.0, 0.1, steps=1, isolated="decay"),
    OutlierExposure(),
    BoundedEnergy(first_epoch=2),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_training_gives_the_same(blocks, exposure, objective, monkeypatch):
    used = []

    class Counted(TwoLayers):
        def __init__(self, *arguments):
            used.append(1)
            super().__init__(*arguments)

    monkeypatch.setattr(passes, "TwoLayers", Counted)
    fast, general = GCN(8, 16, 3).double(), GCN(8, 16, 3).double()
    blocks.x, exposure.x = blocks.x.double(), exposure.x.double()
    first = train(fast, blocks, objective=objective, exposure=exposure, epochs=8)
    assert len(used) == 1 + objective.needs_exposure
    monkeypatch.setattr(passes, "suits", lambda *_: False)
    second = train(general, blocks, objective=objective, exposure=exposure, epochs=8)
    assert len(used) == 1 + objective.needs_exposure
    assert first.loss == pytest.approx(second.loss, rel=1e-9)
    assert first.val_loss == pytest.approx(second.val_loss, rel=1e-9)
    assert first.best_epoch == second.best_epoch
    for key, value in general.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[key], value, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("kind", ["sparse", "half full", "the same graph", "other features", "other density"])
def test_graphs_with_the_same_features_share_their_product(blocks, kind, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    density = 0.3 if kind == "half full" else 0.05
    dtype = torch.float32 if kind == "half full" else torch.float64  # a bag is float32's
    blocks.x = (torch.rand(120, 40, generator=generator) * (torch.rand(120, 40, generator=generator) < density)).to(
        dtype
    )
    exposure = copy.copy(blocks)
    exposure.mask = torch.arange(120) % 3 == 0
    if kind != "the same graph":
        exposure.x = blocks.x.clone()
        exposure.edge_index = torch.stack([blocks.edge_index[0], blocks.edge_index[1].flip(0)])
    if kind == "other features":
        exposure.x[0, 0] += 1
    if kind == "other density":
        exposure.x += 1
    objective, limit = EnergyMargin(-5.0, -1.0, 0.1), 1e-3 if kind == "half full" else 1e-9
    products, multiplied = [], inputs.ConvolutionInputs.multiplied
    monkeypatch.setattr(
        inputs.ConvolutionInputs, "multiplied", lambda self, weight: products.append(1) or multiplied(self, weight)
    )
    fast, general = GCN(40, 16, 3).to(dtype), GCN(40, 16, 3).to(dtype)
    first = train(fast, blocks, objective=objective, exposure=exposure, epochs=6)
    # one when the model is tried, one before the first epoch, one in each validation, and where they differ
    assert len(products) == 1 + 1 + 6 + (6 if kind.startswith("other") else 0)
    monkeypatch.setattr(passes, "suits", lambda *_: False)
    second = train(general, blocks, objective=objective, exposure=exposure, epochs=6)
    assert first.loss == pytest.approx(second.loss, rel=limit)
    assert first.val_loss == pytest.approx(second.val_loss, rel=limit)


def test_exposure_that_is_the_same_graph_has_its_own_pass(blocks):
    """Under a label shift it is: BatchNorm's running statistics move twice a step."""
    blocks.mask = blocks.test_mask
    model = GCN(8, 16, 3)
    train(model, blocks, objective=EnergyMargin(-5.0, -1.0, 0.1), exposure=blocks, epochs=1)
    assert model.norms[0].num_batches_tracked == 2


def test_what_does_not_suit(directed):
    assert suits(GCN(6, 8, 3), prepare(directed))
    assert not suits(GCN(6, 8, 3, 3), prepare(directed))
    assert not suits(GCN(6, 8, 3, batch_norm=False), prepare(directed))
    assert not suits(GCN(6, 8, 3, dropout=0.1), prepare(directed))
    assert not suits(type("Own", (GCN,), {})(6, 8, 3), prepare(directed))
    assert not suits(nn.Linear(6, 3), prepare(directed))
    for change in ({"momentum": None}, {"affine": False}, {"track_running_stats": False}):
        model = GCN(6, 8, 3)
        model.norms[0] = nn.BatchNorm1d(8, **change)
        assert not suits(model, prepare(directed))
    hooked = GCN(6, 8, 3)
    hooked.penultimate.register_forward_hook(lambda *_: None)
    assert not suits(hooked, prepare(directed))
    asking = prepare(directed).with_features(directed.x.clone().requires_grad_())
    assert not suits(GCN(6, 8, 3), asking)
    assert not suits(GCN(6, 8, 3), prepare(SimpleNamespace(x=directed.x[:1], edge_index=directed.edge_index[:, :0])))


def test_weights_that_are_held_still_have_no_gradient(directed):
    model = network(6, torch.float32)
    model.weights[0].requires_grad_(False)
    TwoLayers(model, prepare(directed), *rows(directed)).training().sum().backward()
    assert model.weights[0].grad is None
    assert model.weights[1].grad.any()


@pytest.mark.parametrize("make", [wide, None])
def test_what_training_made_ready_is_freed_with_the_graph(words, make, monkeypatch):
    made = []
    monkeypatch.setattr(
        two_layers, "_rows", lambda *a, build=two_layers._rows: made.append(weakref.ref(a[0])) or build(*a)
    )
    source = words if make is None else make()
    x, edge_index = source.x.clone(), source.edge_index.clone()
    mask = torch.arange(len(x)) < 3
    data = SimpleNamespace(x=x, edge_index=edge_index, y=torch.zeros(len(x), dtype=torch.int64),
                           train_mask=mask, val_mask=mask.roll(3))  # fmt: skip
    train(GCN(x.shape[1], 8, 2), data, objective=CrossEntropy(), epochs=2)
    gc.collect()
    assert made[0]() is None  # nothing outlives the training
    graph = prepare(data)
    for _ in range(2):
        train(GCN(x.shape[1], 8, 2), graph, objective=CrossEntropy(), epochs=2)
    assert made[1]() is made[2]()  # a prepared graph keeps it
    del graph
    gc.collect()
    assert made[1]() is None
