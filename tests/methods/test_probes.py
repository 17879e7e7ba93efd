"""Heads that are fitted on frozen embeddings."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from scipy.special import digamma
from torch.distributions import Dirichlet, kl_divergence

from gnnsafe import Outputs, metrics
from gnnsafe.methods import EnergyHead, EvidentialProbe
from gnnsafe.methods.energy_head import slope
from gnnsafe.methods.evidential_probe import uncertain_loss
from gnnsafe.methods.probe import minimised, perceptron, standards, standing

ALONE = torch.empty(2, 0, dtype=torch.int64)


def outputs_of(embeddings: torch.Tensor, classes: int = 2) -> Outputs:
    data = SimpleNamespace(x=torch.zeros(len(embeddings), 1), edge_index=ALONE)
    return Outputs(torch.zeros(len(embeddings), classes), data, embedded=embeddings)


@pytest.fixture
def clusters():
    """Two clusters that training nodes stand in, and nodes of neither, between and beyond them."""
    generator = torch.Generator().manual_seed(0)
    noise = 0.3 * torch.randn(300, 3, generator=generator)
    y = torch.arange(300) % 2
    known = noise + 3.0 * (2 * y - 1)[:, None]
    unknown = 0.3 * torch.randn(60, 3, generator=generator)
    unknown[:30, 0] += 7.0
    return outputs_of(torch.cat([known, unknown])), torch.cat([y, y[:60]]), torch.arange(360) < 200


@pytest.mark.parametrize("method", [EnergyHead(), EvidentialProbe()], ids=["energy head", "probe"])
def test_nodes_between_the_clusters_stand_out(method, clusters):
    outputs, y, mask = clusters
    scores = method.fit(outputs, y, mask).score(outputs)
    assert metrics.detection(scores[200:300], scores[330:]).auroc > 0.95
    again = type(method)().fit(outputs, y, mask).score(outputs)
    assert torch.equal(scores, again)
    other = type(method)(seed=1).fit(outputs, y, mask).score(outputs)
    assert not torch.equal(scores, other)


def test_the_energy_beyond_the_data_is_high(clusters):
    outputs, y, mask = clusters
    scores = EnergyHead().fit(outputs, y, mask).score(outputs)
    assert metrics.detection(scores[200:300], scores[300:330]).auroc > 0.95


def test_energy_head_by_hand():
    method = EnergyHead(hidden=1)
    method.standard_ = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    method.first_, method.last_ = torch.tensor([[3.0], [0.5]]).double(), torch.tensor([[2.0], [-1.0]]).double()
    # (2 − 1) / 2 = ½, 3 · ½ + ½ = 2, silu(2) = 2 σ(2)
    expected = 2 * 2 / (1 + math.exp(-2)) - 1
    assert method.score(outputs_of(torch.tensor([[2.0]]))).tolist() == pytest.approx([expected])


def test_the_slope_by_hand_is_autograds():
    torch.manual_seed(0)
    points = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    first, last = torch.randn(4, 7, dtype=torch.float64), torch.randn(8, 1, dtype=torch.float64)
    expected = torch.autograd.grad(perceptron(points, first, last).sum(), points)[0]
    torch.testing.assert_close(slope(points.detach(), first, last), expected)


def test_langevin_samples_walk_downhill():
    torch.manual_seed(0)
    weights = [torch.randn(4, 7).double(), torch.randn(8, 1).double()]
    ends = {
        walk: EnergyHead(step=1.0, walk=walk)._negatives(3, weights, torch.Generator().manual_seed(0))
        for walk in (0, 40)
    }
    assert perceptron(ends[40], *weights).mean() < perceptron(ends[0], *weights).mean()


def test_uncertain_loss_by_hand():
    alpha, target = torch.tensor([[1.5, 4.0, 2.5]], dtype=torch.float64), torch.tensor([[0.0, 1.0, 0.0]])
    expected = digamma(8.0) - digamma(4.0)
    assert uncertain_loss(alpha, target, 0.0).item() == pytest.approx(expected)
    divergence = kl_divergence(Dirichlet(alpha), Dirichlet(torch.ones(1, 3, dtype=torch.float64))).item()
    assert uncertain_loss(alpha, target, 0.5).item() == pytest.approx(expected + 0.5 * divergence)


def test_evidential_probe_by_hand():
    method = EvidentialProbe(hidden=1)
    method.standard_ = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    method.first_, method.last_ = (
        torch.zeros(2, 1).double(),
        torch.tensor([[9.0, 9.0], [0.0, math.log(math.e**3 - 1)]]).double(),
    )
    # evidence softplus(0) = log 2 and 3: α = (1 + log 2, 4)
    total = 5 + math.log(2)
    node = outputs_of(torch.tensor([[5.0]]))
    assert method.score(node).tolist() == pytest.approx([2 / total])
    method.measure = "confidence"
    assert method.score(node).tolist() == pytest.approx([-4 / total])


def test_adam_by_hand():
    (found,) = minimised(lambda weights: (weights[0] - 3.0).square().sum(), [torch.zeros(1).double()], 1)
    assert found.tolist() == pytest.approx([0.01])  # the first step is the rate, whatever the slope
    (found,) = minimised(lambda weights: (weights[0] - 0.3).square().sum(), [torch.zeros(1).double()], 400)
    assert found.tolist() == pytest.approx([0.3], abs=1e-3)


def test_a_dimension_that_does_not_vary():
    rows = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    assert standing(rows, standards(rows)).tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert standards(torch.ones(1, 3)).tolist() == [[1.0] * 3, [1.0] * 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EnergyHead(hidden=0), "'hidden' must be"),
        (lambda: EnergyHead(step=0.0), "'step' must be > 0"),
        (lambda: EnergyHead(walk=-1), "'walk' must be"),
        (lambda: EvidentialProbe(epochs=0), "'epochs' must be"),
        (lambda: EvidentialProbe(weight=-1.0), "'weight' must be >= 0"),
        (lambda: EvidentialProbe("evidence"), "'measure' must be"),
    ],
)
def test_what_they_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()
