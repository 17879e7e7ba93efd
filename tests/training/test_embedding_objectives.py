"""Objectives that read embeddings: synthetic exposure and margins on the Dirichlet energy."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gnnsafe import CrossEntropy, EnergyMargin, Outputs, energy, train
from gnnsafe.errors import InputError
from gnnsafe.homophily import roughness
from gnnsafe.methods import DirichletEnergy
from gnnsafe.models import GCN, MLP
from gnnsafe.outputs import Penultimate
from gnnsafe.prepared import prepare
from gnnsafe.training import DirichletMargin, SyntheticExposure
from gnnsafe.training.synthetic_exposure import unlikely


def test_the_least_likely_draws_are_far_from_their_class():
    torch.manual_seed(0)
    labels = torch.arange(400) % 2
    known = torch.randn(400, 2) * torch.tensor([1.0, 3.0]) + 100.0 * labels[:, None]
    drawn = unlikely(known, labels, 2000, 20)
    assert drawn.shape == (20, 2)
    nearest = (drawn[:, 0] > 50).long() * 100.0
    lengths = ((drawn - nearest[:, None]) / torch.tensor([1.0, 3.0])).norm(dim=1)
    assert lengths.min() > 2.5  # of 2000 draws the 20 furthest are beyond √(2 log 100) = 3.03, except for the estimate
    assert lengths.max() < 6


def test_one_node_of_a_class_and_a_class_without_nodes():
    drawn = unlikely(torch.ones(1, 3), torch.tensor([2]), 10, 4)
    assert drawn.isfinite().all()
    torch.testing.assert_close(drawn, torch.ones(4, 3))


class Head(nn.Module):
    """An embedding and a linear head, by hand."""

    def __init__(self):
        super().__init__()
        self.penultimate, self.last = Penultimate(), nn.Linear(2, 3)

    def forward(self, x, edge_index):
        return self.last(self.penultimate(x))


def test_synthetic_exposure_is_the_margin_of_what_the_head_makes_of_the_draws(blocks):
    data = SimpleNamespace(**{**blocks.to_dict(), "x": blocks.x[:, :2].clone()})
    model, graph = Head(), prepare(data)
    objective = SyntheticExposure(-4.0, 9.0, 0.3, candidates=50, kept=7, first_epoch=3)
    objective = objective.bound(graph, lambda _: None)
    outputs = Outputs.of(model, graph)
    outputs = Outputs(model(graph.x, None), graph, "multiclass", outputs.classifier, graph.x)
    assert torch.equal(objective.loss(outputs, epoch=2), CrossEntropy().loss(outputs))
    torch.manual_seed(5)
    loss = objective.loss(outputs, epoch=3)
    torch.manual_seed(5)
    drawn = unlikely(graph.x[data.train_mask], data.y[data.train_mask], 50, 7)
    beyond = (9.0 - energy(model.last(drawn))).relu().square().mean()
    within = (energy(outputs.logits[data.train_mask]) + 4.0).relu().square().mean()
    torch.testing.assert_close(loss, CrossEntropy().loss(outputs) + 0.3 * (within + beyond))
    loss.backward()
    assert model.last.weight.grad.abs().sum() > 0


def test_the_draws_leave_batchnorm_alone(blocks):
    plain, exposed = MLP(8, 16, 3), MLP(8, 16, 3)
    train(plain, blocks, objective=CrossEntropy(), epochs=10)
    train(exposed, blocks, objective=SyntheticExposure(weight=0.0, first_epoch=0), epochs=10)
    torch.testing.assert_close(dict(exposed.state_dict()), dict(plain.state_dict()), rtol=1e-4, atol=1e-5)


def test_the_draws_energies_are_lifted(blocks):
    plain, exposed = MLP(8, 16, 3), MLP(8, 16, 3)
    train(plain, blocks, objective=CrossEntropy(), epochs=60)
    train(exposed, blocks, objective=SyntheticExposure(-5.0, 2.0, 1.0, first_epoch=0), epochs=60)
    with torch.no_grad():
        far = unlikely(Outputs.of(plain, blocks).embeddings, blocks.y, 400, 100)
        lifted, before = (energy(far @ model.weights[-1] + model.biases[-1]).mean() for model in (exposed, plain))
    assert lifted > before


def test_training_with_it_is_reproducible(blocks):
    models = [GCN(8, 16, 3) for _ in range(2)]
    losses = [
        train(model, blocks, objective=SyntheticExposure(first_epoch=2), epochs=6, seed=3).loss for model in models
    ]
    assert losses[0] == losses[1]


def test_it_must_know_its_graph(blocks):
    outputs = Outputs(torch.zeros(120, 3), blocks, embedded=blocks.x)
    with pytest.raises(InputError, match="must know its graph; call bound"):
        SyntheticExposure(first_epoch=0).loss(outputs)


def test_dirichlet_margin_by_hand():
    # 0 → 1: a = (2, 0) and (1, 1)/√2; D_0 = 0, D_1 = (2 − 1/√2)² + ½; exposure: D_1 = 4
    edges, mask = torch.tensor([[0], [1]]), torch.tensor([False, True])
    data = SimpleNamespace(x=torch.zeros(2, 1), edge_index=edges, y=torch.tensor([0, 1]), train_mask=mask, mask=mask)
    inside = Outputs(torch.zeros(2, 2), data, embedded=torch.tensor([[2.0, 0.0], [1.0, 1.0]]))
    outside = Outputs(torch.zeros(2, 2), data, embedded=torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
    energy_in = (2 - 0.5**0.5) ** 2 + 0.5
    assert roughness(inside.embeddings, prepare(data).edges).tolist() == pytest.approx([0.0, energy_in], abs=1e-6)
    expected = math.log(2) + 0.5 * ((energy_in - 1.0) ** 2 + (6.0 - 4.0) ** 2)
    assert DirichletMargin(1.0, 6.0, 0.5, steps=0).loss(inside, outside).item() == pytest.approx(expected)
    half = math.log(2) + 0.5 * (max(energy_in / 2 - 1.0, 0) ** 2 + (6.0 - 2.0) ** 2)  # mixed with node 0's D of 0
    assert DirichletMargin(1.0, 6.0, 0.5, steps=1).loss(inside, outside).item() == pytest.approx(half)


def test_dirichlet_margin_trains_what_the_method_scores(blocks, exposure):
    def gap(objective):
        model = GCN(8, 16, 3)
        train(model, blocks, exposure=exposure, objective=objective, epochs=40)
        inside, outside = (DirichletEnergy().score(Outputs.of(model, data)) for data in (blocks, exposure))
        return float(outside[exposure.mask].mean() - inside[blocks.train_mask].mean())

    assert gap(DirichletMargin(0.0, 5.0, 1.0)) > gap(CrossEntropy())


def test_a_model_without_a_marked_embedding(blocks):
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(8, 3)

        def forward(self, x, edge_index):
            return self.last(x)

    with pytest.raises(InputError, match=r"'model' must send its embedding through one .*Penultimate \(got 0 such\)"):
        train(Bare(), blocks, objective=SyntheticExposure(), epochs=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SyntheticExposure(kept=0), "'kept' must be"),
        (lambda: SyntheticExposure(kept=9, candidates=3), "'kept' must be at most candidates, 3"),
        (lambda: SyntheticExposure(weight=-1.0), "'weight' must be >= 0"),
        (lambda: SyntheticExposure(first_epoch=-1), "'first_epoch' must be"),
        (lambda: DirichletMargin(t_in=math.nan), "'t_in' must be a finite number"),
        (lambda: DirichletMargin(weight=-1.0), "'weight' must be >= 0"),
        (lambda: DirichletMargin(steps=-1), "'steps' must be"),
        (lambda: DirichletMargin().loss(Outputs(torch.zeros(1, 2), SimpleNamespace(
            x=torch.zeros(1, 1), edge_index=torch.empty(2, 0, dtype=torch.int64)))), "'exposure' must be given"),
        (lambda: EnergyMargin(-5.0, -1.0, -0.1), "'weight' must be >= 0"),
    ],
)  # fmt: skip
def test_what_they_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()
