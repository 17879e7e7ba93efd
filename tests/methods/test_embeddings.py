"""Methods that read embeddings: Mahalanobis, KNN, DiffusedKNN, ReAct, ViM, GEBM, DirichletEnergy."""

from __future__ import annotations

import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.covariance import ledoit_wolf as sklearn_ledoit_wolf
from sklearn.neighbors import NearestNeighbors
from torch import nn

from gnnsafe import Outputs, energy, propagate
from gnnsafe.methods import GEBM, KNN, DiffusedKNN, DirichletEnergy, Mahalanobis, ReAct, ViM
from gnnsafe.methods.knn import nearest_distances
from gnnsafe.methods.mahalanobis import ledoit_wolf

NO_EDGES = torch.empty(2, 0, dtype=torch.int64)


def outputs(embeddings, logits=None, edge_index=NO_EDGES):
    graph = SimpleNamespace(x=torch.zeros(len(embeddings), 1), edge_index=edge_index)
    logits = torch.zeros(len(embeddings), 2) if logits is None else logits
    return Outputs(logits, graph, embedded=embeddings)


def everyone(tensor):
    return torch.ones(len(tensor), dtype=torch.bool)


class TestMahalanobis:
    def test_by_hand(self):
        # classes ±(1, 0) and (4, 0) ± (0, 2): S = diag(½, 2), ‖S‖² = 17/4, mean ‖r‖⁴ = 17/2, ‖S − 5/4 I‖² = 9/8:
        # Ledoit and Wolf's share is (17/4)/4 / (9/8) = 17/18, and Σ = S/18 + 17/18 · 5/4 I = diag(29, 31)/24
        h = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [4.0, 2.0], [4.0, -2.0]])
        y = torch.tensor([0, 0, 1, 1])
        residuals = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]]).double()
        torch.testing.assert_close(ledoit_wolf(residuals), torch.diag(torch.tensor([29.0, 31.0]).double() / 24))
        method = Mahalanobis(normalize=False).fit(outputs(h), y, everyone(h))
        new = torch.tensor([[0.0, 5.0], [4.0, 0.0], [3.0, 0.0]])
        assert method.score(outputs(new)).tolist() == pytest.approx([25 * 24 / 31, 0.0, 24 / 29])

    def test_against_scipy(self):
        torch.manual_seed(0)
        h, y = torch.randn(60, 5) @ torch.randn(5, 5), torch.arange(60) % 3
        unit = torch.nn.functional.normalize(h).double().numpy()
        means = np.stack([unit[y == c].mean(axis=0) for c in range(3)])
        covariance, _ = sklearn_ledoit_wolf(unit - means[y], assume_centered=True)
        expected = cdist(unit, means, "mahalanobis", VI=np.linalg.inv(covariance)).min(axis=1) ** 2
        logits = torch.zeros(60, 4)  # one class has no training node
        score = Mahalanobis().fit(outputs(h, logits), y, everyone(h)).score(outputs(h, logits))
        np.testing.assert_allclose(score, expected, rtol=1e-5)

    @pytest.mark.parametrize("shape", [(50, 7), (9, 7), (200, 3)])
    def test_ledoit_and_wolf_against_sklearn(self, shape):
        rows = torch.randn(shape, dtype=torch.float64) @ torch.randn(shape[1], shape[1], dtype=torch.float64)
        expected, _ = sklearn_ledoit_wolf(rows.numpy(), assume_centered=True)
        np.testing.assert_allclose(ledoit_wolf(rows), expected)

    def test_directions_without_variance_have_no_say(self):
        h = torch.tensor([[1.0, 7.0], [-1.0, 7.0]])
        method = Mahalanobis(normalize=False).fit(outputs(h), torch.tensor([0, 0]), everyone(h))
        one, other = method.score(outputs(torch.tensor([[0.5, 7.0], [0.5, -100.0]]))).tolist()
        assert one == other == pytest.approx(0.25)

    def test_embeddings_that_are_all_alike(self):
        h = torch.ones(4, 3)
        with pytest.raises(ValueError, match=r"'embeddings' must differ between training nodes \(got all alike\)"):
            Mahalanobis().fit(outputs(h), torch.tensor([0, 0, 1, 1]), everyone(h))

    def test_one_node_per_class(self):
        # residuals about the grand mean 1: ±1, variance 1
        h = torch.tensor([[0.0], [2.0]])
        method = Mahalanobis(normalize=False).fit(outputs(h), torch.tensor([0, 1]), everyone(h))
        assert method.score(outputs(torch.tensor([[0.0], [5.0]]))).tolist() == pytest.approx([0.0, 9.0])

    def test_multilabel_nodes_count_for_each_label_that_they_have_and_have_not(self):
        h = torch.tensor([[0.0], [2.0], [6.0]])
        graph = SimpleNamespace(x=torch.zeros(3, 1), edge_index=NO_EDGES)
        result = Outputs(torch.zeros(3, 2), graph, "multilabel", embedded=h)
        # label 0: means 1 and, of those without it, 6; label 1: means 4 and 0. Residuals ±1, 0, ±2, 0: variance 10/6
        y = torch.tensor([[1, 0], [1, 1], [0, 1]])
        method = Mahalanobis(normalize=False).fit(result, y, everyone(h))
        new = Outputs(torch.zeros(2, 2), result.graph, "multilabel", embedded=torch.tensor([[2.0], [9.0]]))
        assert method.score(new).tolist() == pytest.approx([0.6, 9 * 0.6])

    def test_a_binary_head_has_two_classes(self):
        graph = SimpleNamespace(x=torch.zeros(4, 1), edge_index=NO_EDGES)
        h = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
        result = Outputs(torch.zeros(4, 1), graph, "multilabel", embedded=h)
        method = Mahalanobis(normalize=False).fit(result, torch.tensor([0, 0, 1, 1]), everyone(h))
        assert method.score(result).tolist() == pytest.approx([1.0] * 4)

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            ([[1], [0], [1]], r"'y' must have the model's 2 labels \(got 1\)"),
            ([[1, 7], [0, 1], [1, 1]], "'y' must be 0 or 1"),
        ],
    )
    def test_multilabel_labels_that_do_not_fit(self, y, message):
        graph = SimpleNamespace(x=torch.zeros(3, 1), edge_index=NO_EDGES)
        result = Outputs(torch.zeros(3, 2), graph, "multilabel", embedded=torch.randn(3, 2))
        with pytest.raises(ValueError, match=message):
            Mahalanobis().fit(result, torch.tensor(y), torch.ones(3, dtype=torch.bool))

    def test_a_step_lowers_the_distance(self):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

            def forward(self, x, edge_index):
                return self.last(self.first(x))

        torch.manual_seed(0)
        graph = SimpleNamespace(x=torch.randn(40, 3), edge_index=NO_EDGES)
        result = Outputs.of(Own(), graph, embedding="first")
        y = torch.arange(40) % 2
        plain, stepped = (
            Mahalanobis(epsilon=e, normalize=False).fit(result, y, everyone(y)).score(result) for e in (0, 1e-3)
        )
        assert (stepped <= plain).all()
        assert (stepped < plain).any()

    def test_labels_that_the_model_does_not_have(self):
        h = torch.randn(3, 2)
        with pytest.raises(ValueError, match=r"'y' must lie in 0..1 for training nodes \(got 0..5\)"):
            Mahalanobis().fit(outputs(h), torch.tensor([0, 1, 5]), everyone(h))


class TestKNN:
    def test_by_hand(self):
        # unit vectors at 0°, 90°, 180°; a point at 0° of another length: distances 0, √2, 2
        h = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        for k, distance in [(1, 0.0), (2, math.sqrt(2)), (3, 2.0), (10, 2.0)]:
            method = KNN(k=k).fit(outputs(h), torch.zeros(3, dtype=torch.int64), everyone(h))
            assert method.score(outputs(torch.tensor([[5.0, 0.0]]))).item() == pytest.approx(distance)

    def test_against_sklearn(self, monkeypatch):
        torch.manual_seed(0)
        bank = torch.nn.functional.normalize(torch.randn(70, 6, dtype=torch.float64))
        points = torch.nn.functional.normalize(torch.randn(33, 6, dtype=torch.float64))
        expected, _ = NearestNeighbors(n_neighbors=5).fit(bank).kneighbors(points)
        np.testing.assert_allclose(nearest_distances(points, bank, 5), expected)
        monkeypatch.setattr("gnnsafe.methods.knn.PRODUCTS", 150)  # two rows at a time
        np.testing.assert_allclose(nearest_distances(points, bank, 5), expected)

    def test_only_training_nodes_are_in_the_bank(self):
        h = torch.eye(3)
        mask = torch.tensor([True, False, False])
        method = KNN(k=1).fit(outputs(h), torch.zeros(3, dtype=torch.int64), mask)
        assert method.score(outputs(h)).tolist() == pytest.approx([0.0, math.sqrt(2), math.sqrt(2)])

    def test_bad_settings(self):
        with pytest.raises(ValueError, match="'k' must be a whole number >= 1"):
            KNN(k=0)


class TestDiffusedKNN:
    def test_by_hand(self):
        # 0 → 1: node 1's embedding becomes ½(0, 2) + ½(2, 0) ∝ (1, 1), at 45°; the bank is node 0 at 0°
        h, edges = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([[0], [1]])
        method = DiffusedKNN(diffusion=1, k=1, steps=0)
        method.fit(outputs(h, edge_index=edges), torch.zeros(2, dtype=torch.int64), torch.tensor([True, False]))
        chord = 2 * math.sin(math.pi / 8)
        assert method.score(outputs(h, edge_index=edges)).tolist() == pytest.approx([0.0, chord], abs=1e-6)
        method.steps = 1
        assert method.score(outputs(h, edge_index=edges)).tolist() == pytest.approx([0.0, chord / 2], abs=1e-6)

    def test_it_is_the_mean_of_the_nearest(self, directed):
        h = torch.randn(5, 4)
        method = DiffusedKNN(diffusion=0, k=3, steps=2)
        result = outputs(h, edge_index=directed.edge_index)
        method.fit(result, torch.zeros(5, dtype=torch.int64), everyone(h))
        unit = torch.nn.functional.normalize(h)
        nearest = torch.cdist(unit, unit).sort(dim=1).values[:, :3].mean(dim=1)
        torch.testing.assert_close(method.score(result), propagate(nearest, directed.edge_index), atol=1e-3, rtol=0)


class TestReAct:
    def test_by_hand(self):
        class Own(nn.Module):
            """Embedding x, logits (h₁ + h₂, 0)."""

            def __init__(self):
                super().__init__()
                self.hidden = nn.Identity()

            def forward(self, x, edge_index):
                h = self.hidden(x)
                return torch.stack([h.sum(dim=1), torch.zeros(len(h))], dim=1)

        x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [9.0, 1.0]])
        graph = SimpleNamespace(x=x, edge_index=NO_EDGES, val_mask=torch.tensor([True, True, False]))
        result = Outputs.of(Own(), graph, embedding="hidden")
        method = ReAct(percentile=100).fit(result, torch.zeros(3, dtype=torch.int64), everyone(x))
        assert method.limit_ == 4.0
        assert method.score(result)[2].item() == pytest.approx(-math.log(math.exp(5) + 1))
        assert ReAct(percentile=50).fit(result, torch.zeros(3, dtype=torch.int64), everyone(x)).limit_ == 2.5

    def test_validation_nodes_are_needed(self):
        h = torch.randn(3, 2)
        with pytest.raises(ValueError, match="'val_mask' must be given"):
            ReAct().fit(outputs(h), torch.zeros(3, dtype=torch.int64), everyone(h))

    def test_bad_settings(self):
        with pytest.raises(ValueError, match=r"'percentile' must lie in \(0, 100\]"):
            ReAct(percentile=0)


class TestViM:
    def test_by_hand(self):
        # training embeddings (±2, ±1): the second direction varies least, every residual is 1; largest logit 3: a = 3
        h = torch.tensor([[2.0, 1.0], [2.0, -1.0], [-2.0, 1.0], [-2.0, -1.0]])
        logits = torch.tensor([[3.0, 0.0]]).repeat(4, 1)
        method = ViM(residual=1).fit(outputs(h, logits), torch.zeros(4, dtype=torch.int64), everyone(h))
        new = outputs(torch.tensor([[50.0, 4.0]]), torch.tensor([[1.0, 1.0]]))
        assert method.score(new).item() == pytest.approx(3 * 4 - (1 + math.log(2)))

    def test_embeddings_that_fill_no_space(self):
        h = torch.ones(4, 3)
        score = ViM().fit(outputs(h), torch.zeros(4, dtype=torch.int64), everyone(h)).score(outputs(h))
        torch.testing.assert_close(score, energy(torch.zeros(4, 2)))


class TestDirichletEnergy:
    def test_by_hand(self):
        # 0 → 2, 1 → 2: d = 0, 0, 2; h/√(1+d): 1, 2, 3/√3; ½(√3−1)² + ½(√3−2)²
        h, edges = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0, 1], [2, 2]])
        root = math.sqrt(3)
        expected = ((root - 1) ** 2 + (root - 2) ** 2) / 2
        score = DirichletEnergy(steps=0).score(outputs(h, edge_index=edges))
        assert score.tolist() == pytest.approx([0.0, 0.0, expected])
        assert DirichletEnergy(steps=1).score(outputs(h, edge_index=edges))[2].item() == pytest.approx(expected / 2)


class TestGEBM:
    def test_by_hand(self):
        # h is one number: class 0 at ±1 around 0, class 1 at ±1 around 10: variances 1 (+ 1 % + 1e-6 of the pooled 1).
        h = torch.tensor([[-1.0], [1.0], [9.0], [11.0]])
        logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 4.0]])

        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.hidden = nn.Identity()

            def forward(self, x, edge_index):
                self.hidden(x[:, :1])
                return x[:, 1:]

        graph = SimpleNamespace(x=torch.cat([h, logits], dim=1), edge_index=torch.tensor([[0], [2]]))
        result = Outputs.of(Own(), graph, embedding="hidden")
        method = GEBM(steps=1).fit(result, torch.tensor([0, 0, 1, 1]), everyone(h))
        variance = 1 + 0.01 + 1e-6
        distance = torch.stack([h[:, 0] ** 2, (h[:, 0] - 10) ** 2], dim=1).double() / variance
        low, high = np.quantile(distance, [0.025, 0.975], axis=0)
        floor, top = np.quantile(logits, [0.025, 0.975], axis=0)
        mapped = (distance.numpy() - low) / (high - low) * (top - floor) + floor
        evidence = logits.numpy() - mapped
        own = -np.log(np.exp(evidence).sum(axis=1))
        smooth = evidence.copy()
        smooth[2] = (evidence[0] + evidence[2]) / 2  # 2 hears 0
        heard = own.copy()
        heard[2] = (own[0] + own[2]) / 2
        expected = -np.log(np.exp(smooth).sum(axis=1)) + heard + own
        np.testing.assert_allclose(method.score(result), expected, rtol=1e-5)

    def test_a_class_of_one_node_and_one_of_none(self):
        h = torch.randn(5, 3)
        graph = SimpleNamespace(x=h, edge_index=torch.tensor([[0], [1]]))

        class Own(nn.Linear):
            def forward(self, x, edge_index):
                return super().forward(x)

        class Holder(nn.Module):
            def __init__(self):
                super().__init__()
                self.hidden, self.head = nn.Identity(), Own(3, 4)

            def forward(self, x, edge_index):
                return self.head(self.hidden(x), edge_index)

        result = Outputs.of(Holder(), graph, embedding="hidden")
        method = GEBM().fit(result, torch.tensor([0, 0, 0, 1, 3]), everyone(h))
        assert method.classes_.tolist() == [0, 1, 3]
        assert torch.isfinite(method.score(result)).all()


@pytest.mark.parametrize("method", [Mahalanobis(), KNN(), DiffusedKNN(), ReAct(), ViM(), GEBM()])
def test_without_embeddings_they_say_what_is_missing(method):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([nn.Linear(2, 3), nn.Linear(3, 2)])

        def forward(self, x, edge_index):
            return self.convs[1](self.convs[0](x))

    graph = SimpleNamespace(x=torch.randn(4, 2), edge_index=NO_EDGES, val_mask=torch.ones(4, dtype=torch.bool))
    result = Outputs.of(Own(), graph)
    with pytest.raises(ValueError, match=r"'embedding' must name the submodule .* it has convs, convs.0, convs.1"):
        method.fit(result, torch.tensor([0, 1, 0, 1]), torch.ones(4, dtype=torch.bool)).score(result)


NEAREST = """
import resource, torch
from gnnsafe.methods.knn import nearest_distances

points, bank = torch.randn(60_000, 64), torch.randn(1000, 64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
nearest_distances(points, bank, 10)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_distances_of_many_points_take_a_chunks_memory():
    """In a process of its own: what the allocator keeps depends on all that came before."""
    done = subprocess.run([sys.executable, "-c", NEAREST], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150
