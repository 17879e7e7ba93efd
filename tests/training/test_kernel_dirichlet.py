from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy import stats
from scipy.sparse.csgraph import shortest_path
from scipy.special import digamma, gammaln

from gnnsafe import CrossEntropy, Outputs, metrics, train
from gnnsafe.models import GCN
from gnnsafe.prepared import prepare
from gnnsafe.training import KernelDirichlet, kernel_dirichlet
from gnnsafe.training.kernel_dirichlet import bayes_risk, kernel_prior

PEAK = 1 / math.sqrt(2 * math.pi)


def graph(nodes: int = 2, **attributes) -> SimpleNamespace:
    return SimpleNamespace(x=torch.zeros(nodes, 1), edge_index=torch.empty(2, 0, dtype=torch.int64), **attributes)


# α = (1 + 1, 1 + 2) for the labelled node, (1 + 1, 1 + 1) for the other
LOGITS = torch.tensor([[0.0, math.log(2.0)], [0.0, 0.0]])
DATA = graph(y=torch.tensor([1, 0]), train_mask=torch.tensor([True, False]))
BOUND = replace(
    KernelDirichlet(weight=0.1),
    prior_=torch.ones(2, 2, dtype=torch.float64),
    teacher_=torch.tensor([[0.5, 0.5], [0.2, 0.8]], dtype=torch.float64).log(),
)


class TestLoss:
    def test_bayes_risk_is_the_expected_squared_error(self):
        alpha = torch.tensor([[2.0, 3.0, 0.5]], dtype=torch.float64)
        samples = np.random.default_rng(0).dirichlet(alpha[0], 400_000)
        expected = np.square(samples - np.array([0.0, 1.0, 0.0])).sum(axis=1).mean()
        assert bayes_risk(alpha.log(), torch.tensor([1])).item() == pytest.approx(expected, rel=3e-3)

    def test_by_hand(self):
        # risk of Dir(2, 3), y = 1: 2 · (2/5)² + 2 · (6/25) / 6; the divergence from a uniform prior is −entropy
        risk = 0.32 + 0.08
        prior = -(stats.beta(2, 3).entropy() + stats.beta(2, 2).entropy()) / 2
        loss = BOUND.loss(Outputs(LOGITS, DATA))
        assert loss.item() == pytest.approx(risk + 0.1 * prior, rel=1e-6)

    def test_the_teacher_comes_in_by_and_by(self):
        first = 0.4 * math.log(0.4 / 0.5) + 0.6 * math.log(0.6 / 0.5)
        second = 0.5 * math.log(0.5 / 0.2) + 0.5 * math.log(0.5 / 0.8)
        without = BOUND.loss(Outputs(LOGITS, DATA)).item()
        for epoch, share in ((50, 0.25), (200, 1.0), (500, 1.0)):
            loss = BOUND.loss(Outputs(LOGITS, DATA), epoch=epoch).item()
            assert loss - without == pytest.approx(share * (first + second) / 2, rel=1e-5)

    def test_the_divergence_is_from_the_prior_not_to_it(self):
        prior = torch.tensor([[1.4, 1.0, 2.0]], dtype=torch.float64)
        data = graph(1, y=torch.tensor([0]), train_mask=torch.tensor([True]))
        logits = torch.tensor([[1.0, -2.0, 0.5]])
        a, b = 1 + np.exp(logits.double().numpy()[0]), prior.numpy()[0]
        divergence = gammaln(a.sum()) - gammaln(a).sum() - gammaln(b.sum()) + gammaln(b).sum()
        divergence += ((a - b) * (digamma(a) - digamma(a.sum()))).sum()
        with_prior = KernelDirichlet(1.0, prior_=prior, teacher_=torch.zeros(1, 3, dtype=torch.float64))
        risk = replace(with_prior, weight=0.0).loss(Outputs(logits, data))
        assert (with_prior.loss(Outputs(logits, data)) - risk).item() == pytest.approx(divergence, rel=1e-6)

    def test_validation_is_the_cross_entropy_of_the_mean(self):
        value = KernelDirichlet().validation(LOGITS, torch.tensor([1, 0]), "multiclass").item()
        assert value == pytest.approx(-(math.log(3 / 5) + math.log(1 / 2)) / 2)

    @pytest.mark.parametrize("extreme", [-1e4, -100.0, 29.0, 100.0, 1e4])
    def test_extreme_logits_have_finite_losses_and_gradients(self, extreme):
        logits = torch.tensor([[extreme, 0.0], [0.0, extreme]], requires_grad=True)
        loss = BOUND.loss(Outputs(logits, DATA), epoch=100)
        loss.backward()
        assert torch.isfinite(loss)
        assert torch.isfinite(logits.grad).all()


class TestPrior:
    def test_a_path_by_hand(self):
        """Labelled 0 (class 1) and 2 (class 0) of 0→1→2→3; an isolated node; labels are heard along the edges."""
        edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
        mask = torch.tensor([True, False, True, False, False])
        prior = kernel_prior(edges, torch.tensor([1, 0, 0, 0, 0]), mask, num_classes=3)
        near, far, farther = (PEAK * math.exp(-d * d / 2) for d in (1, 2, 3))
        expected = [[0, PEAK, 0], [0, near, 0], [PEAK, far, 0], [near, farther, 0], [0, 0, 0]]
        torch.testing.assert_close(prior, 1 + torch.tensor(expected, dtype=torch.float64), atol=1e-7, rtol=0)

    @pytest.mark.parametrize("sigma", [0.3, 1.0, 2.5])
    @pytest.mark.parametrize("frontier", [1, 200, 2**24])
    def test_equal_to_all_shortest_paths(self, monkeypatch, sigma, frontier):
        """On a directed graph with loops, repeated edges and nodes out of reach."""
        monkeypatch.setattr(kernel_dirichlet, "FRONTIER", frontier)
        generator = torch.Generator().manual_seed(1)
        edges = torch.randint(60, (2, 80), generator=generator)
        edges = torch.cat([edges, edges[:, :10], torch.tensor([[3], [3]])], dim=1)
        y, mask = torch.randint(3, (60,), generator=generator), torch.arange(60) % 4 == 0
        weights = sp.coo_array((np.ones(edges.shape[1]), edges.numpy()), shape=(60, 60))
        hops = shortest_path(weights.tocsr(), unweighted=True)
        digraph = nx.DiGraph(edges.T.tolist())
        assert hops[0, 5] == dict(nx.single_source_shortest_path_length(digraph, 0)).get(5, math.inf)
        kernel = stats.norm(scale=sigma).pdf(hops)[mask.numpy()]
        expected = 1 + kernel.T @ np.eye(3)[y[mask].numpy()]
        prior = kernel_prior(edges, y, mask, num_classes=3, sigma=sigma)
        np.testing.assert_allclose(prior.numpy(), expected, atol=60 * 1e-6 / sigma, rtol=0)  # what is cut off
        assert np.abs(prior.numpy() - expected).max() > 0 or sigma < 1

    def test_hops_beyond_the_kernel_are_not_walked(self):
        line = torch.arange(9)
        prior = kernel_prior(torch.stack([line[:-1], line[1:]]), 0 * line, line == 0, num_classes=1).squeeze(1)
        assert (prior[:6] > 1).all()
        assert (prior[6:] == 1).all()


class TestTraining:
    def test_binding_asks_for_a_teacher_of_cross_entropy(self):
        lessons = []

        def teach(lesson):
            lessons.append(lesson)
            return torch.tensor([[0.0, 0.0], [0.0, math.log(4.0)]])

        bound = KernelDirichlet().bound(prepare(DATA), teach)
        assert lessons == [CrossEntropy()]
        torch.testing.assert_close(bound.teacher_.exp(), torch.tensor([[0.5, 0.5], [0.2, 0.8]]).double())
        torch.testing.assert_close(
            bound.prior_, torch.tensor([[1.0, 1 + PEAK], [1.0, 1.0]]).double(), atol=1e-7, rtol=0
        )
        assert bound == KernelDirichlet()
        assert hash(bound) == hash(KernelDirichlet())
        assert repr(bound) == "KernelDirichlet(weight=0.001, sigma=1.0, annealing=200)"

    def test_it_learns(self, blocks):
        model = GCN(8, 16, 3)
        history = train(model, blocks, objective=KernelDirichlet(), epochs=60)
        assert metrics.accuracy(Outputs.of(model, blocks).logits, blocks.y, blocks.test_mask) > 0.8
        assert history.val_loss[history.best_epoch] < math.log(3) / 2

    def test_it_learns_from_a_graph_made_in_inference_mode(self, blocks):
        expected = train(GCN(8, 4, 3), blocks, objective=KernelDirichlet(), epochs=3)
        with torch.inference_mode():
            data = blocks.clone()
        history = train(GCN(8, 4, 3), data, objective=KernelDirichlet(), epochs=3)
        assert history.loss == expected.loss

    def test_it_says_what_is_missing(self):
        with pytest.raises(ValueError, match=r"KernelDirichlet\(.*\) must know its graph; call bound"):
            KernelDirichlet().loss(Outputs(LOGITS, DATA))
        for ask in (
            lambda: BOUND.loss(Outputs(LOGITS, DATA, "multilabel")),
            lambda: BOUND.validation(LOGITS, DATA.y, "multilabel"),
        ):
            with pytest.raises(ValueError, match="'task' must be 'multiclass' for KernelDirichlet"):
                ask()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"weight": -1}, r"'weight' must be >= 0 \(got -1\)"),
            ({"sigma": 0}, "'sigma' must be > 0"),
            ({"annealing": 0}, "'annealing' must be a whole number >= 1"),
        ],
    )
    def test_bad_settings(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            KernelDirichlet(**arguments)
