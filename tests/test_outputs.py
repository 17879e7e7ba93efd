from __future__ import annotations

from typing import NamedTuple

import pytest
import scipy.sparse as sp
import torch
from torch import nn
from torch_geometric.data import Data

import gnnsafe
from gnnsafe import Outputs
from gnnsafe.borrowed import borrow
from gnnsafe.models import GCN, MODELS
from gnnsafe.outputs import Classifier, Penultimate
from gnnsafe.sparse import Sparse


class Model(nn.Module):
    """Logits that tell whether the model was in evaluation mode without gradients."""

    def __init__(self, shape=None):
        super().__init__()
        self.dropout, self.frozen = nn.Dropout(0.5), nn.BatchNorm1d(1).eval()
        self.shape, self.calls = shape, 0

    def forward(self, x, edge_index):
        self.calls += 1
        assert not self.training
        assert not self.dropout.training
        assert not torch.is_grad_enabled()
        return torch.zeros(self.shape or (len(x), 2))


def test_the_model_runs_once_and_is_left_as_it_was_found(directed):
    model = Model()
    model.train()
    model.frozen.eval()
    outputs = Outputs.of(model, directed)
    assert outputs.logits.shape == (5, 2)
    assert outputs.graph.x is directed.x
    assert model.calls == 1
    assert model.training
    assert model.dropout.training
    assert not model.frozen.training
    assert torch.is_grad_enabled()


def test_modes_come_back_after_an_error():
    model = nn.Dropout().train()
    with pytest.raises(KeyError), borrow(model):
        raise KeyError
    assert model.training


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Model((4, 2)), r"'logits' must have one row for each of 5 nodes \(got 4\)"),
        (Model((5,)), r"'logits' must be a floating tensor of shape \[nodes, classes\]"),
    ],
)
def test_bad_outputs(directed, model, message):
    with pytest.raises(ValueError, match=message):
        Outputs.of(model, directed)


def test_a_model_that_returns_no_tensor(directed):
    class Tuple(nn.Module):
        def forward(self, x, edge_index):
            return x, x

    with pytest.raises(ValueError, match=r"must be a torch.Tensor \(got a tuple of 2\); choose .*edge_index\)\[0\]"):
        Outputs.of(Tuple(), directed)


def test_a_model_that_diverged(directed):
    class Nan(nn.Module):
        def forward(self, x, edge_index):
            return torch.full((len(x), 2), float("nan"))

    with pytest.raises(ValueError, match="'logits' must be finite"):
        Outputs.of(Nan(), directed)


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs, self.act = nn.ModuleList([nn.Linear(6, 4), nn.Linear(4, 2)]), nn.ReLU()

    def forward(self, x, edge_index):
        return self.convs[1](self.act(self.act(self.convs[0](x))))


class TestEmbeddings:
    def test_of_a_named_submodule(self, directed):
        model = TwoLayers()
        outputs = Outputs.of(model, directed, embedding="convs.0")
        assert torch.equal(outputs.embeddings, model.convs[0](directed.x))
        assert not outputs.embeddings.requires_grad
        assert not model.convs[0]._forward_hooks

    def test_of_a_marked_place(self, directed):
        model = TwoLayers()
        model.act = nn.Sequential(nn.ReLU())
        model.forward = lambda x, edge_index: model.convs[1](model.mark(model.convs[0](x)))
        model.mark = Penultimate()
        assert torch.equal(Outputs.of(model, directed).embeddings, model.convs[0](directed.x))

    def test_work_in_place_afterwards_does_not_change_it(self, directed):
        model = TwoLayers()
        model.act = nn.ReLU(inplace=True)
        embeddings = Outputs.of(model, directed, embedding="convs.0").embeddings
        assert torch.equal(embeddings, model.convs[0](directed.x))
        model.mark = Penultimate()
        model.forward = lambda x, edge_index: model.convs[1](model.mark(model.convs[0](x)).relu_())
        assert torch.equal(Outputs.of(model, directed).embeddings, embeddings)

    def test_of_several_marks_none_is_chosen(self, directed):
        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.other = GCN(6, 8, 3), GCN(6, 8, 3)

            def forward(self, x, edge_index):
                return self.one(x, edge_index) + self.other(x, edge_index)

        with pytest.raises(ValueError, match="'embedding' must name the submodule"):
            Outputs.of(Both(), directed).embeddings  # noqa: B018

    def test_of_gcn(self, directed):
        model = GCN(6, 8, 3)
        outputs = Outputs.of(model, directed)
        assert outputs.embeddings.shape == (5, 8)
        assert (outputs.embeddings >= 0).all()

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("conv.0", r"'embedding' must be one of convs, convs.0, convs.1, act \(got 'conv.0'\); did you mean"),
            ("act", r"'embedding \(act\)' must be given once in a forward \(got 2 times\); name another submodule"),
            ("convs", r"'embedding' must name a submodule that the forward runs \(got convs\)"),
        ],
    )
    def test_a_bad_name(self, directed, name, message):
        with pytest.raises(ValueError, match=message):
            Outputs.of(TwoLayers(), directed, embedding=name)

    def test_one_row_per_node(self, directed):
        model = TwoLayers()
        model.forward = lambda x, edge_index: model.convs[0](x[:2])[:, :2].mean() * torch.ones(len(x), 2)
        with pytest.raises(ValueError, match=r"must be of shape \[5, dimensions\] \(got \[2, 4\]\)"):
            Outputs.of(model, directed, embedding="convs.0")

    def test_an_edit_reaches_the_logits_alone(self, directed):
        model = TwoLayers()
        outputs = Outputs.of(model, directed, embedding="convs.0")
        silent = outputs.again(edit=torch.zeros_like)
        assert torch.equal(silent.logits, model.convs[1].bias.expand(5, 2))
        assert torch.equal(silent.embeddings, outputs.embeddings)
        with pytest.raises(ValueError, match="'embedding' must name the submodule"):
            Outputs.of(model, directed).again(edit=torch.zeros_like)


class TestAgain:
    def test_without_edges_the_model_is_asked_once(self, directed):
        class Counting(nn.Module):
            calls = 0

            def forward(self, x, edge_index):
                Counting.calls += 1
                return torch.full((len(x), 2), float(edge_index.shape[1]))

        outputs = Outputs.of(Counting(), directed)
        assert outputs.without_edges.logits.unique().tolist() == [0.0]
        assert outputs.without_edges is outputs.without_edges
        assert Counting.calls == 2
        assert directed.edge_index.shape[1] == 7

    def test_attributes_of_edges_do_not_outlive_them(self):
        data = Data(x=torch.zeros(3, 2), edge_index=torch.tensor([[0], [1]]), edge_attr=torch.ones(1, 4))
        seen = []

        def forward(model, data):
            seen.append(data.edge_attr)
            return data.x

        outputs = Outputs.of(nn.Identity(), data, forward=forward)
        outputs.without_edges  # noqa: B018
        assert [attributes.shape for attributes in seen] == [(1, 4), (0, 4)]

    def test_edges_kept_elsewhere_are_not_passed_over(self):
        data = Data(x=torch.zeros(3, 2), edge_index=torch.tensor([[0], [1]]), adj=torch.eye(3))
        outputs = Outputs.of(nn.Identity(), data, forward=lambda model, data: data.adj @ data.x)
        with pytest.raises(ValueError, match=r"'data.adj' must be left out where edges are, .*\(got one\)"):
            outputs.without_edges  # noqa: B018

    def test_a_graph_that_cannot_be_changed(self, directed):
        class Fixed(NamedTuple):
            x: torch.Tensor
            edge_index: torch.Tensor

        outputs = Outputs.of(TwoLayers(), Fixed(directed.x, directed.edge_index))
        with pytest.raises(ValueError, match=r"'data' must let its attributes be set on a copy \(got Fixed\)"):
            outputs.without_edges  # noqa: B018

    def test_gradients_reach_the_features(self, directed):
        outputs = Outputs.of(TwoLayers(), directed)
        x = directed.x.clone().requires_grad_()
        directed.x = x
        assert outputs.again(directed, gradients=True).logits.requires_grad
        assert not outputs.again(directed).logits.requires_grad


class TestForward:
    def test_a_call_of_ones_own(self, directed):
        model = nn.Linear(6, 3).train()
        outputs = Outputs.of(model, directed, forward=lambda model, data: 2 * model(data.x))
        torch.testing.assert_close(outputs.logits, 2 * model(directed.x).detach())
        assert model.training

    def test_a_model_that_takes_the_graph_whole(self, directed):
        class Whole(nn.Module):
            def forward(self, data):
                return data.x

        message = (
            r"'model' must be called \(x, edge_index\) \(got forward\(data\)\); say how .* forward=lambda model, data"
        )
        with pytest.raises(ValueError, match=message):
            Outputs.of(Whole(), directed)
        assert Outputs.of(Whole(), directed, forward=lambda model, data: model(data)).logits.shape == (5, 6)

    def test_features_of_another_precision(self, directed):
        directed.x = directed.x.double()
        with pytest.raises(ValueError, match=r"'x' must be torch.float32 as the model is \(got torch.float64\)"):
            Outputs.of(TwoLayers(), directed)

    def test_an_error_of_the_model_is_its_own(self, directed):
        class Broken(nn.Module):
            def forward(self, x, edge_index):
                raise RuntimeError("out of luck")

        with pytest.raises(RuntimeError, match="out of luck"):
            Outputs.of(Broken(), directed)

    def test_what_cannot_be_called(self, directed):
        with pytest.raises(ValueError, match=r"'forward' must be called \(model, data\) \(got 3\)"):
            Outputs.of(nn.Identity(), directed, forward=3)

    def test_what_gives_no_tensor(self, directed):
        with pytest.raises(ValueError, match=r"'forward\(model, data\)' must be a torch.Tensor \(got NoneType\)"):
            Outputs.of(nn.Identity(), directed, forward=lambda model, data: None)


def test_half_precision_is_taken_up(directed):
    model = TwoLayers()
    forward = lambda model, data: model(data.x, None).bfloat16()  # noqa: E731 - as under autocast
    outputs = Outputs.of(model, directed, forward=forward)
    assert outputs.logits.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_probabilities_are_no_logits(directed, dtype):
    forward = lambda model, data: data.x.softmax(dim=1).to(dtype)  # noqa: E731
    with pytest.raises(ValueError, match=r"'logits' must be unnormalised \(got probabilities\)"):
        Outputs.of(nn.Identity(), directed, forward=forward)


class TestTask:
    def test_one_logit_is_no_softmax(self, directed):
        with pytest.raises(ValueError, match=r"'logits' must have at least two classes \(got 1\); a sigmoid head"):
            Outputs.of(Model((5, 1)), directed)
        assert Outputs.of(Model((5, 1)), directed, task="multilabel").logits.shape == (5, 1)

    def test_a_squeezed_binary_head(self, directed):
        assert Outputs.of(Model((5,)), directed, task="multilabel").logits.shape == (5, 1)

    def test_a_task_that_is_none(self, directed):
        with pytest.raises(ValueError, match="'task' must be one of multiclass, multilabel"):
            Outputs.of(Model((5, 2)), directed, task="binary")


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", MODELS)
def test_every_number_of_bare_data_is_looked_at(directed, name, layout):
    """Again when it has changed, by whatever way."""
    if layout == "csr":
        directed.x = Sparse(sp.csr_array(directed.x.numpy())).csr
    model = MODELS[name](6, 8, 2)
    assert Classifier(model).takes_prepared
    Outputs.of(model, directed)
    entries = directed.x if layout == "dense" else directed.x.values()
    entries.numpy()[0] = float("nan")  # torch does not see it
    with pytest.raises(ValueError, match="'x' must be finite"):
        Outputs.of(model, directed)
    entries.numpy()[0] = 0.0
    directed.edge_index.numpy()[0, 0] = 99
    with pytest.raises(ValueError, match="'edge_index' must hold node ids < 5"):
        Outputs.of(model, directed)


def test_whoever_changes_the_forward_is_asked_about_features_and_edges(directed):
    class Summed(GCN):
        def forward(self, x, edge_index):
            source, target = edge_index
            return torch.zeros(len(x), 3).index_add(0, target, x[source, :3])

    patched, hooked = GCN(6, 8, 2), GCN(6, 8, 2)
    patched.forward = lambda x, edge_index: torch.zeros(len(x), 2)
    hooked.register_forward_pre_hook(lambda module, inputs: (inputs[0].nan_to_num(), inputs[1]))
    calls = [(Model(), None), (Summed(6, 8, 2), None), (patched, None), (hooked, None), (GCN(6, 8, 2), GCN.__call__)]
    for model, forward in calls:
        assert not Classifier(model, forward=forward).takes_prepared
    directed.edge_index[0, 0] = -1  # the last node to torch
    with pytest.raises(ValueError, match="'edge_index' must hold node ids >= 0"):
        Outputs.of(Summed(6, 8, 2), directed)
    directed.x[0] = float("nan")
    with pytest.raises(ValueError, match="'x' must be finite"):
        Outputs.of(hooked, directed)


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_embeddings_lie_as_they_look(directed, name):
    outputs = Outputs.of(MODELS[name](6, 8, 2), directed)
    assert outputs.logits.is_contiguous()
    assert outputs.embeddings.is_contiguous()


@pytest.mark.parametrize("digits", [3, 4, 9])
def test_rounded_probabilities_are_no_logits(digits):
    given = (
        10**digits * torch.randn(50, 7, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    ).round() / 10**digits
    with pytest.raises(ValueError, match=r"'logits' must be unnormalised \(got probabilities\)"):
        gnnsafe.score_logits(given, torch.empty(2, 0, dtype=torch.long), method="msp")


def test_rounded_log_probabilities_have_no_energy():
    given = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)).log_softmax(dim=1).bfloat16().float()
    with pytest.raises(ValueError, match="log-probabilities"):
        gnnsafe.score_logits(given, torch.empty(2, 0, dtype=torch.long), method="energy")
    energies = gnnsafe.score_logits(torch.tensor([[0.001, -9.0]] * 9), torch.empty(2, 0).long(), method="energy")
    assert energies.isfinite().all()  # nodes that are all alike may have any energy
