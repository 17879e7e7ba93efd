"""Every method, model and objective, the detector and training, on another device: the CPU's results, and there."""

from __future__ import annotations

import copy
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.conftest import block_graph
from tests.methods.test_contract import Planted, planted, usual  # noqa: F401 - a fixture
from tests.second_device import other_devices, without_float64
from tests.test_devices import assert_same, moved, sparse
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import GCNConv

import gnnsafe.sparse
from gnnsafe import Detector, load, prepare, propagate, score_logits, train
from gnnsafe.errors import InputError
from gnnsafe.methods import METHODS
from gnnsafe.models import GCN, MODELS
from gnnsafe.monitoring import observe
from gnnsafe.propagation import Propagation
from gnnsafe.training import OBJECTIVES

pytestmark = other_devices


def model_for(data: Any, name: str = "gcn", seed: int = 0, **options: Any) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS[name](data.x.shape[1], 8, 3, **options).eval()


@pytest.mark.parametrize("name", METHODS)
def test_methods(name, planted, device):  # noqa: F811
    there = moved(planted, device)
    assert_same(Detector(Planted().to(device), METHODS[name]()).fit(there).score(there), usual(name), device)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", MODELS)
def test_models(name, layout, blocks, device):
    data = sparse(blocks) if layout == "sparse" else blocks
    model = model_for(data, name)
    other, there = copy.deepcopy(model).to(device), moved(data, device)
    with torch.no_grad():
        assert_same(other(there.x, there.edge_index), model(data.x, data.edge_index), device)
    model(data.x, data.edge_index).square().mean().backward()
    other(there.x, there.edge_index).square().mean().backward()
    gradients = [[weight.grad for weight in one.parameters() if weight.grad is not None] for one in (other, model)]
    assert_same(*gradients, device)


@pytest.mark.parametrize("name", ["gcn", "graphsage", "gin", "sgc"])
def test_products_by_csr_as_cuda_has_them(name, blocks, device, monkeypatch):
    monkeypatch.setattr(gnnsafe.sparse, "CSR_DEVICES", (device,))
    data, model = sparse(blocks), model_for(blocks, name)
    other, there = copy.deepcopy(model).to(device), moved(data, device)
    for one, graph in ((model, data), (other, there)):
        one(graph.x, graph.edge_index).square().sum().backward()
    assert_same([weight.grad for weight in other.parameters()], [weight.grad for weight in model.parameters()], device)
    scores = propagate(blocks.x[:, 0], prepare(blocks).edges, steps=3)
    edges = prepare(moved(blocks, device)).edges
    assert edges.mean().csr is not None
    assert_same(propagate(blocks.x[:, 0].to(device), edges, steps=3), scores, device)


OWN = {"uncertain-cross-entropy": "gpn", "member-cross-entropy": "ensemble"}  # the models of some objectives


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives(name, blocks, exposure, device):
    if device != "second":
        pytest.skip("a GPU draws other random numbers")
    first = model_for(blocks, OWN.get(name, "gcn"))
    second = copy.deepcopy(first).to(device)
    arguments = {"t_in": -5.0, "t_out": -1.0, "weight": 0.1} if name == "energy-margin" else {}
    arguments |= {"first_epoch": 1} if name == "synthetic-exposure" else {}
    settings = {"objective": OBJECTIVES[name](**arguments), "epochs": 3}
    expected = train(first, blocks, exposure=exposure, **settings)
    history = train(second, moved(blocks, device), exposure=moved(exposure, device), **settings)
    assert history.loss == pytest.approx(expected.loss, rel=1e-4)
    assert history.val_loss == pytest.approx(expected.val_loss, rel=1e-4)
    assert_same(dict(second.state_dict()), dict(first.state_dict()), device)


@pytest.mark.parametrize("isolated", ["keep", "decay"])
def test_propagate(isolated, directed, device):
    scores = torch.arange(5.0)
    for steps in (0, 1, 2, 16):
        expected = propagate(scores, directed.edge_index, steps=steps, isolated=isolated)
        ours = propagate(scores.to(device), directed.edge_index.to(device), steps=steps, isolated=isolated)
        assert_same(ours, expected, device)


@pytest.mark.parametrize("by_class", [False, True])
def test_a_detector_from_fit_to_load(by_class, blocks, tmp_path, device):
    warnings.simplefilter("ignore")
    there, model = moved(blocks, device), model_for(blocks)
    cpu = Detector(model).fit(blocks).calibrate(blocks, by_class=by_class)
    ours = Detector(copy.deepcopy(model).to(device)).fit(there).calibrate(there, by_class=by_class)
    ours.save(tmp_path / "detector")
    reopened = load(tmp_path / "detector")
    assert_same(reopened.score(blocks), cpu.score(blocks), "cpu")
    reopened = load(tmp_path / "detector", device=device)
    assert_same(reopened.predict(there, false_alarm=0.1), cpu.predict(blocks, false_alarm=0.1), device)
    assert_same(ours.score(there), cpu.score(blocks), device)
    assert_same(ours.score(there, batch_size=50), cpu.score(blocks), device)
    assert_same(ours.p_values(there), cpu.p_values(blocks), device)
    assert_same(ours.predict(there, false_alarm=0.1), cpu.predict(blocks, false_alarm=0.1), device)
    test = blocks.test_mask
    assert_same(ours.predict(there, fdr=0.3, mask=test), cpu.predict(blocks, fdr=0.3, mask=test), device)
    assert str(ours.check_calibration(there)) == str(cpu.check_calibration(blocks))
    assert str(ours.explain(there, node=3)) == str(cpu.explain(blocks, node=3))
    for nodes in ([5, 7], torch.tensor([5, 7]), there.x[:, 0] > 1.9):
        expected = cpu.score_new(blocks, nodes=nodes.cpu() if isinstance(nodes, torch.Tensor) else nodes)
        assert_same(list(ours.score_new(there, nodes=nodes)), list(expected), device)
    expected = cpu.predict_new(blocks, nodes=[5], false_alarm=0.1)
    assert_same(list(ours.predict_new(there, nodes=[5], false_alarm=0.1)), list(expected), device)
    assert ours.score_new(there, nodes=[]).scores.device.type == device
    decided, expected = (one.decide(data, false_alarm=0.1) for one, data in ((ours, there), (cpu, blocks)))
    assert_same(vars(decided), vars(expected), device)
    assert decided.to_arrow().num_rows == 120
    sets, expected = (one.predict_sets(data, error=0.3) for one, data in ((ours, there), (cpu, blocks)))
    assert_same(vars(sets), vars(expected), device)
    assert sets.to_arrow().equals(expected.to_arrow())
    assert_same(reopened.predict_sets(there, error=0.3, batch_size=50).members, expected.members, device)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs_fitting()])
def test_what_was_fitted_follows_the_model(name, planted, device):  # noqa: F811
    model = Planted()
    detector = Detector(model, METHODS[name]()).fit(planted)
    expected = detector.score(planted)
    model.to(device)
    assert_same(detector.score(moved(planted, device)), expected, device)


@pytest.mark.parametrize("name", ["feature-norm", "nonzero-features", "mean-cosine", "odin", "mahalanobis", "gebm"])
def test_methods_on_sparse_features(name, blocks, device):
    data, model = sparse(blocks), model_for(blocks)
    expected = Detector(model, name).fit(data).score(data)
    there = moved(data, device)
    assert_same(Detector(copy.deepcopy(model).to(device), name).fit(there).score(there), expected, device)


@pytest.mark.parametrize("name", ["gnnsafe", "msp", "knn", "mahalanobis", "vim", "odin"])
def test_methods_of_several_labels(name, blocks, device):
    data, model = copy.copy(blocks), model_for(blocks)
    data.y = torch.nn.functional.one_hot(blocks.y, 3)
    expected = Detector(model, name, task="multilabel").fit(data).score(data)
    ours = Detector(copy.deepcopy(model).to(device), name, task="multilabel")
    assert_same(ours.fit(moved(data, device)).score(moved(data, device)), expected, device)


@pytest.mark.parametrize("name", MODELS)
def test_a_bare_call_sees_a_write_behind_torchs_back(name, blocks, device):
    model, (x, edge_index) = model_for(blocks, name).to(device), moved([blocks.x, blocks.edge_index], device)
    model(x, edge_index)
    x.data.mul_(2)  # which no version counter counts
    assert_same(model(x, edge_index), model(x.clone(), edge_index).detach().cpu(), device)


@pytest.mark.filterwarnings("ignore:.*nodes are flagged")
def test_a_graph_that_is_monitored(blocks, device):
    there, model = moved(blocks, device), model_for(blocks)
    expected = observe(Detector(model, "gnnsafe").fit(blocks).calibrate(blocks), blocks)
    ours = observe(Detector(copy.deepcopy(model).to(device), "gnnsafe").fit(there).calibrate(there), there)
    assert ours.candidates.tolist() == expected.candidates.tolist() == blocks.test_mask.nonzero().flatten().tolist()
    assert ours.digests.tolist() == expected.digests.tolist()
    for name in ("graph", "flagged", "classes", "degrees"):
        assert getattr(ours.entry, name) == getattr(expected.entry, name)
    assert ours.scores(ours.candidates[:1] * 0).tolist() == pytest.approx(expected.scores(ours.candidates[:1] * 0))


def test_a_prepared_graph(blocks, device):
    model, graph = model_for(blocks).to(device), prepare(blocks).to(device)
    assert graph.to(device) is graph.to(graph.device) is graph
    assert graph.train_mask.device == graph.device == graph.edges.device
    detector = Detector(model).fit(graph).calibrate(graph)
    expected = Detector(model).fit(moved(blocks, device)).score(moved(blocks, device))
    assert_same(detector.score(graph), expected.cpu(), device)
    with pytest.raises(InputError, match="'edge_index' must be on"):
        prepare(SimpleNamespace(x=graph.x, edge_index=blocks.edge_index))
    graph.x[0] = 0.0
    for written in (detector.score, lambda graph: graph.to("cpu")):
        with pytest.raises(InputError, match="'x' must be left as it was"):
            written(graph)


def test_all_that_a_prepared_graph_holds_is_moved(blocks, device):
    data = copy.copy(blocks)
    data.edge_names, data.norms = ["cites"] * data.num_edges, {"rows": torch.ones(2)}
    graph = prepare(data)
    there = graph.to(device)
    assert there.edge_names == data.edge_names
    assert there.norms["rows"].device == there.device
    assert graph.norms["rows"].device == graph.x.device == torch.device("cpu")


def test_labels_and_masks_may_have_stayed_behind(blocks, exposure, device):
    """Who moves features and edges alone has moved what is large."""
    data, outside = copy.copy(blocks), copy.copy(exposure)
    for graph in (data, outside):
        graph.x, graph.edge_index = graph.x.to(device), graph.edge_index.to(device)
    there, model = moved(blocks, device), model_for(blocks).to(device)
    history = train(model, data, exposure=outside, objective=OBJECTIVES["outlier-exposure"](), epochs=2)
    again = train(model, there, exposure=moved(exposure, device), objective=OBJECTIVES["outlier-exposure"](), epochs=2)
    assert history.loss == again.loss
    for name in ("gnnsafe", "react", "grasp"):
        ours = Detector(model, name).fit(data).calibrate(data, mask=blocks.test_mask)
        expected = Detector(model, name).fit(there).calibrate(there, mask=there.test_mask)
        assert_same(ours.p_values(data), expected.p_values(there).cpu(), device)


def test_diagnosis(device):
    warnings.simplefilter("ignore")
    blocks = block_graph(60)
    there, model = moved(blocks, device), model_for(blocks)
    expected = Detector(model).fit(blocks).diagnose(blocks, candidates=["msp"], draws=1)
    ours = Detector(copy.deepcopy(model).to(device)).fit(there).diagnose(there, candidates=["msp"], draws=1)
    assert str(ours) == str(expected)


def test_logits_from_anywhere(blocks, device):
    logits = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    expected = score_logits(logits, blocks.edge_index)
    assert_same(score_logits(logits.to(device), blocks.edge_index.to(device)), expected, device)


def test_one_node_type(device):
    torch.manual_seed(0)
    edges = torch.randint(20, (2, 60))
    whole = HeteroData({"a": {"x": torch.randn(20, 8), "y": torch.arange(20) % 3, "train_mask": torch.arange(20) < 9},
                        ("a", "to", "a"): {"edge_index": edges}})  # fmt: skip
    model = model_for(whole["a"])
    given = {"node_type": "a", "forward": lambda model, data: model(data["a"].x, data["a", "a"].edge_index)}
    expected = Detector(model, "gnnsafe", **given).fit(whole).score(whole)
    there, other = copy.copy(whole).to(device), copy.deepcopy(model).to(device)
    detector = Detector(other, "gnnsafe", **given).fit(there)
    assert_same(detector.score(there), expected, device)
    graph = Detector(model, "gnnsafe", **given).fit(whole).prepared(whole)
    assert_same(detector.score(graph.to(device)), expected, device)
    assert graph.data.whole["a"].x is whole["a"].x


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(8, 6), GCNConv(6, 3)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def test_a_model_of_anybody(blocks, device):
    torch.manual_seed(0)
    model, there = Convolutions(), moved(blocks, device)
    other = copy.deepcopy(model).to(device)
    for method in ("gnnsafe", "mahalanobis", "odin"):
        expected = Detector(model, method, embedding="convs.0").fit(blocks).score(blocks)
        assert_same(Detector(other, method, embedding="convs.0").fit(there).score(there), expected, device)


def test_a_graph_and_a_model_on_two_devices(blocks, exposure, device):
    model, there = model_for(blocks), moved(blocks, device)
    place = str(there.x.device)
    with pytest.raises(InputError, match=rf"^'data' must be on the model's device, cpu \(got {place}\); call data.to"):
        Detector(model).fit(there)
    with pytest.raises(InputError, match=rf"^'data' must be on the model's device, cpu \(got {place}\); call data.to"):
        Detector(Convolutions(), "gnnsafe", forward=lambda model, data: model(data.x, data.edge_index)).fit(there)
    weighed = copy.copy(there)
    weighed.edge_weight = torch.ones(there.num_edges)
    for given in ({}, {"forward": lambda model, data: model(data.x, data.edge_index, data.edge_weight)}):
        with pytest.raises(InputError, match=rf"^'data.edge_weight' must be on {place}, as x is \(got cpu\); call"):
            Detector(GCNConv(8, 3).to(device), "gnnsafe", **given).fit(weighed)
    detector = Detector(model.to(device)).fit(there)
    message = (
        rf"'data' must be on the model's device, {place} \(got cpu\); call data.to\('{place}'\), or model.to\('cpu'\)"
    )
    with pytest.raises(InputError, match=f"^{message}$"):
        detector.score(blocks)
    with pytest.raises(InputError, match=f"^{message}$"):
        train(model, blocks, objective=OBJECTIVES["cross-entropy"](), epochs=1)
    with pytest.raises(InputError, match=rf"^'exposure' must be on the device of data, {place} \(got cpu\)"):
        train(model, there, exposure=exposure, objective=OBJECTIVES["outlier-exposure"](), epochs=1)
    for bare in (model_for(blocks, name) for name in MODELS):
        with pytest.raises(InputError, match=rf"^'x' must be on the model's device, cpu \(got {place}\); call data.to"):
            bare(there.x, there.edge_index)
    for scored in (propagate, lambda *given: Propagation(2, weighting="similarity")(*given)):
        with pytest.raises(
            InputError, match=rf"^'edge_index' must be on {place}, as scores are \(got cpu\); call edge"
        ):
            scored(there.x[:, 0], blocks.edge_index)
    with pytest.raises(
        InputError, match=rf"^'edge_index' must be on cpu, as logits are \(got {place}\); call edge_index"
    ):
        score_logits(blocks.x, there.edge_index, method="agreement")
    with pytest.raises(InputError, match=rf"^'edge_index' must be on {place}, as x is"):
        prepare(blocks).with_features(there.x)
    moving = Detector(model, forward=lambda model, data: model(data.x.to(place), data.edge_index.to(place)))
    with pytest.raises(InputError, match=rf"^'logits' must be on the graph's device, cpu \(got {place}\); return"):
        moving.fit(blocks)


def moving(model: nn.Module, data: Any) -> torch.Tensor:
    """A user's forward whose model is on another device than the graph."""
    there = next(model.parameters()).device
    return model(data.x.to(there), data.edge_index.to(there)).cpu()


@pytest.mark.parametrize("name", METHODS)
def test_a_forward_may_run_its_model_on_another_device(name, planted, device):  # noqa: F811
    with without_float64():  # as Apple's MPS
        detector = Detector(Planted().to(device), METHODS[name](), forward=moving).fit(planted)
        assert_same(detector.score(planted), usual(name), "cpu")


def test_a_device_without_float64_is_refused_at_the_door(blocks, device):
    if device != "second":
        pytest.skip("CUDA has it")
    model, there = model_for(blocks).to(device), moved(blocks, device)
    message = r"^'data' must be on a device that has float64 \(got second:0\); .*, with forward="
    with without_float64():
        with pytest.raises(InputError, match=message):
            Detector(model).fit(there)
        with pytest.raises(InputError, match=message):
            propagate(there.x[:, 0], there.edge_index)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_less_precision_gives_float32_scores(dtype, blocks, device):
    there, model = moved(blocks, device), GCN(8, 8, 3).to(device).eval()
    expected = Detector(model).fit(there).score(there)
    with torch.autocast(torch.device(device).type, dtype=dtype):  # around a call has no say in it
        assert torch.equal(Detector(model).fit(there).score(there), expected)

    def forward(model, data):
        with torch.autocast(torch.device(device).type, dtype=dtype):
            return Linear(model)(data.x)

    scores = Detector(model, forward=forward).fit(there).score(there)
    assert scores.dtype == torch.float32
    assert scores.device == there.x.device


class Linear:
    """One product with a model's first weight, which autocast computes in less precision."""

    def __init__(self, model: nn.Module) -> None:
        self.weight = model.weights[0]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        product = x @ self.weight
        assert product.dtype != torch.float32
        return product
