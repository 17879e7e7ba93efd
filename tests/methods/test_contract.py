"""What every method must keep; it runs over the METHODS table, so a new line there is tested by itself."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gnnsafe import Detector, Outputs, metrics, prepare
from gnnsafe.errors import NotFittedError
from gnnsafe.methods import METHODS, Method, Propagated
from gnnsafe.monitoring import observe
from gnnsafe.outputs import Penultimate

everyone = pytest.mark.parametrize("name", METHODS)


class Planted(nn.Module):
    """Sure of the first half of the nodes, at a loss over the second; what a node hears has a say."""

    def __init__(self):
        super().__init__()
        self.weight, self.dropout, self.penultimate = nn.Parameter(torch.ones(1)), nn.Dropout(0.5), Penultimate()

    def forward(self, x, edge_index):
        heard = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return self.dropout(self.weight * self.penultimate(x + 0.5 * heard))


ID, NODES = 120, 160  # ID nodes come first; the last 30 of them are test nodes


def planted_graph() -> SimpleNamespace:
    """ID nodes with one large logit that hear one of their class, then OOD nodes with none that hear three others.

    The edges are directed. OOD nodes have half of the features, small ones.
    """
    torch.manual_seed(0)
    y = torch.arange(NODES) % 4
    outside = torch.arange(ID, NODES)
    x = 0.5 * torch.rand(NODES, 4)
    x[torch.arange(ID), y[:ID]] += 8.0
    x[ID:] = torch.randn(len(outside), 4).sign() * (0.5 + x[ID:])
    x[outside, y[ID:]] = 0.0
    x[outside, (y[ID:] + 1) % 4] = 0.0
    within = torch.stack([torch.arange(ID), (torch.arange(ID) + 4) % ID])
    heard = torch.stack([outside, outside % 20])  # by a few training nodes
    beyond = torch.cat([torch.stack([outside, outside.roll(hop)]) for hop in (1, 2, 7)], dim=1)
    node = torch.arange(NODES)
    return SimpleNamespace(
        x=x,
        edge_index=torch.cat([within, beyond, heard], dim=1),
        y=y,
        train_mask=node < 60,
        val_mask=(node >= 60) & (node < 90),
    )


@pytest.fixture
def planted() -> SimpleNamespace:
    return planted_graph()


@cache
def usual(name: str) -> torch.Tensor:
    """The method's scores of the planted graph, as they are without anything odd around them."""
    return scores(name, planted_graph())


def scores(name: str, data, model: nn.Module | None = None) -> torch.Tensor:
    return Detector(model or Planted(), METHODS[name]()).fit(data).score(data)


@everyone
def test_one_float32_score_per_node(name):
    result = usual(name)
    assert result.shape == (NODES,)
    assert result.dtype == torch.float32
    assert torch.isfinite(result).all()
    assert not result.requires_grad


@everyone
def test_float64_logits_give_float32_scores(name, planted):
    planted.x = planted.x.double()
    assert scores(name, planted).dtype == torch.float32


@everyone
def test_edges_of_32_bits_give_the_same_scores(name, planted):
    planted.edge_index = planted.edge_index.int()
    assert torch.equal(scores(name, planted), usual(name))


@everyone
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_of_gradients_around_it_have_no_say(name, mode, planted):
    model, expected = Planted(), usual(name)
    with mode():
        assert torch.equal(scores(name, planted, model), expected)


@everyone
def test_a_default_device_has_no_say(name, planted):
    """Where a script says `torch.set_default_device("cuda")`, a graph and a model on the CPU are still there."""
    model, expected = Planted(), usual(name)
    with torch.device("meta"):  # whose tensors hold nothing: whoever makes one fails
        detector = (
            Detector(model, METHODS[name]())
            .fit(planted)
            .calibrate(planted, mask=torch.arange(NODES, device="cpu") > 90)
        )
        assert torch.equal(detector.score(planted), expected)
        assert detector.decide(planted, false_alarm=0.1).p_values.device.type == "cpu"
        assert str(detector.explain(planted, node=3))
        assert observe(detector, planted, false_alarm=0.1).entry.nodes == len(planted.x)


@everyone
def test_planted_ood_nodes_score_higher(name):
    result = usual(name)
    auroc = metrics.detection(result[90:ID], result[ID:]).auroc
    assert auroc < 0.05 if name == "feature-distance" else auroc > 0.95  # theirs lie between all others


@everyone
def test_the_model_is_left_as_it_was_found(name, planted):
    model = Planted().train()
    scores(name, planted, model)
    assert model.training
    assert model.dropout.training
    assert model.weight.requires_grad
    assert model.weight.grad is None
    assert torch.is_grad_enabled()


@everyone
def test_it_is_deterministic(name, planted):
    assert torch.equal(scores(name, planted), usual(name))


@everyone
def test_scores_are_the_callers_own(name, planted):
    """What is written into them changes no later score, of a graph either that keeps what was made of it."""
    detector, graph = Detector(Planted(), METHODS[name]()).fit(planted), prepare(planted)
    first = detector.score(graph)
    expected, _ = first.clone(), first.zero_()
    assert torch.equal(detector.score(graph), expected)
    assert first.is_contiguous()


@everyone
def test_a_node_scores_the_same_whatever_order_the_nodes_come_in(name, planted):
    order = torch.randperm(NODES)
    place = torch.argsort(order)
    shuffled = SimpleNamespace(
        x=planted.x[order],
        edge_index=place[planted.edge_index].flip(1),
        y=planted.y[order],
        train_mask=planted.train_mask[order],
        val_mask=planted.val_mask[order],
    )
    torch.testing.assert_close(scores(name, shuffled), usual(name)[order])


@everyone
def test_a_graph_without_edges_and_one_of_a_single_node(name, planted):
    planted.edge_index = torch.empty(2, 0, dtype=torch.int64)
    assert torch.isfinite(scores(name, planted)).all()
    alone = SimpleNamespace(x=planted.x[:1], edge_index=planted.edge_index)
    assert Detector(Planted(), METHODS[name]()).fit(planted).score(alone).shape == (1,)


@everyone
def test_repr_is_the_record_of_the_experiment(name):
    import gnnsafe.methods

    method = METHODS[name]()
    assert eval(repr(method), vars(gnnsafe.methods)) == method


@everyone
def test_fit_returns_the_method_and_checks_the_mask(name, planted):
    method = METHODS[name]()
    outputs = Outputs.of(Planted(), planted)
    assert method.fit(outputs, planted.y, planted.train_mask) is method
    for bad in (torch.zeros(NODES, dtype=torch.bool), torch.arange(NODES), torch.ones(3, dtype=torch.bool)):
        with pytest.raises(ValueError, match="'mask' must"):
            method.fit(outputs, planted.y, bad)
    with pytest.raises(ValueError, match="'y' must"):
        method.fit(outputs, None, planted.train_mask)


@everyone
def test_a_detector_that_was_not_fitted_says_so(name, planted):
    with pytest.raises(NotFittedError, match="is not fitted; call fit"):
        Detector(Planted(), METHODS[name]()).score(planted)


@everyone
def test_a_method_that_was_not_fitted_says_so(name, planted):
    method, outputs = METHODS[name](), Outputs.of(Planted(), planted)
    if method.needs_fitting():
        with pytest.raises(NotFittedError, match="is not fitted; call fit"):
            method.score(outputs)
    else:
        assert torch.equal(method.score(outputs), usual(name))


@everyone
def test_a_detector_keeps_its_method_to_itself(name, planted):
    method = METHODS[name]()
    Detector(Planted(), method).fit(planted)
    assert not {field for field in vars(method) if field.endswith("_")}


@everyone
def test_propagated_zero_steps_is_the_method_itself(name, planted):
    wrapped = Detector(Planted(), Propagated(METHODS[name](), steps=0)).fit(planted)
    assert torch.equal(wrapped.score(planted), usual(name))


@everyone
def test_multilabel_heads_are_scored(name, planted):
    planted.y = torch.nn.functional.one_hot(planted.y, 4).float()
    planted.y[:, 0] = 1.0
    if name in ("gkde", "gpn", "gebm", "deep-ensemble", "evidential-probe"):
        with pytest.raises(ValueError, match="'task' must be 'multiclass'"):
            Detector(Planted(), METHODS[name](), task="multilabel").fit(planted).score(planted)
        return
    planted.x[:ID] = torch.where(planted.x[:ID] > 3, 6.0, -6.0)  # sure of each label
    result = Detector(Planted(), METHODS[name](), task="multilabel").fit(planted).score(planted)
    assert result.shape == (NODES,)
    assert torch.isfinite(result).all()


@everyone
def test_its_first_line_says_what_it_is(name):
    assert issubclass(METHODS[name], Method)
    first = METHODS[name].__doc__.splitlines()[0]
    assert any(word in first for word in ("20", "19", "(ours)", "(trivial)"))  # the reference's year, if it has one
    assert first.endswith(".")
    assert len(first) < 115


def test_those_that_need_no_model():
    trivial = {name for name, method in METHODS.items() if method.kind == "trivial"}
    degrees = {"degree", "in-degree", "out-degree", "degree-balance"}
    assert (
        trivial == {"mean-cosine", "centred-cosine", "feature-distance", "feature-norm", "nonzero-features"} | degrees
    )


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.kind == "trivial"])
def test_a_trivial_method_needs_no_model(name, planted):
    assert torch.equal(Detector(None, name).fit(planted).score(planted), usual(name))


def test_any_other_does(planted):
    with pytest.raises(ValueError, match=r"'model' must be a torch.nn.Module \(got NoneType\)"):
        Detector(None, "energy")
