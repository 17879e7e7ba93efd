from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import sem, t

from gnnsafe import CrossEntropy, EnergyMargin, Outputs, load_benchmark, shifts, train
from gnnsafe.bench import run as module
from gnnsafe.bench.paper import PAPER_SHIFTS
from gnnsafe.bench.recipes import Recipe, demo_recipes
from gnnsafe.bench.run import Result, attempts, run
from gnnsafe.bench.summary import summaries
from gnnsafe.bench.trained import TrainedModels
from gnnsafe.datasets import Benchmark
from gnnsafe.errors import TrainingError
from gnnsafe.methods import MSP, Energy, GNNSafe, Propagated
from gnnsafe.metrics import Detection, accuracy, detection
from gnnsafe.models import GCN, MODELS
from gnnsafe.prepared import prepare
from gnnsafe.training import MemberCrossEntropy
from gnnsafe.training.loop import History

MARGIN = EnergyMargin(-5.0, -1.0, 0.1)


@pytest.fixture(autouse=True)
def _nothing_cached(monkeypatch):
    """No test meets a model that another one trained."""
    monkeypatch.setattr(module, "_cached", {})


@pytest.fixture
def toy(blocks, exposure) -> Benchmark:
    return Benchmark("cora", "feature", 3, blocks, exposure, {"a": exposure, "b": blocks_with_mask(blocks)}, 3, "toy")


def blocks_with_mask(blocks):
    graph = blocks.clone()
    graph.mask = blocks.val_mask
    return graph


def test_each_objective_is_trained_once_and_shared(toy, monkeypatch):
    trained = []

    def spy(model, data, *, objective, exposure, epochs, lr, seed):
        trained.append((objective, epochs, lr, seed))
        return History(val_loss=[0.5, 0.25])

    monkeypatch.setattr(module, "train", spy)
    plan = [
        Recipe("MSP", CrossEntropy(), MSP()),
        Recipe("Energy", CrossEntropy(), Energy()),
        Recipe("FT", MARGIN, MSP(), lr=0.1),
    ]
    results = run(toy, plan, epochs=7)
    assert trained == [(CrossEntropy(), 7, 0.01, 3), (MARGIN, 7, 0.1, 3)]
    assert {result.val_loss for result in results} == {0.25}
    assert [result.method for result in results] == ["MSP", "MSP", "Energy", "Energy", "FT", "FT"]  # two OOD graphs


def test_shifts_of_one_graph_share_what_is_trained_without_exposure(toy, monkeypatch):
    trained = []

    def spy(model, data, *, objective, **settings):
        trained.append(objective)
        return train(model, data, objective=objective, **settings)

    monkeypatch.setattr(module, "train", spy)
    plan = [Recipe("MSP", CrossEntropy(), MSP()), Recipe("FT", MARGIN, MSP())]
    first = run(toy, plan, epochs=2)
    again = run(replace(toy, shift="structure"), plan, epochs=2)
    assert trained == [CrossEntropy(), MARGIN, MARGIN]
    assert [result.detection for result in again] == [result.detection for result in first]
    run(replace(toy, seed=4), plan[:1], epochs=2)
    run(toy, plan[:1], epochs=3)
    changed = toy.id.clone()
    changed.y[toy.id.train_mask] = 0
    run(replace(toy, id=changed), plan[:1], epochs=2)
    run(toy, [replace(plan[0], lr=0.1)], epochs=2)
    assert trained[3:] == [CrossEntropy()] * 4  # another seed, another length, other labels, another learning rate


def test_only_the_last_models_are_cached(toy, monkeypatch):
    monkeypatch.setattr(module, "MOST_CACHED", 2)
    plan = [Recipe("MSP", CrossEntropy(), MSP())]
    for seed in range(4):
        run(replace(toy, seed=seed), plan, epochs=1)
    assert [key[4] for key in module._cached] == [2, 3]


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        *((name, CrossEntropy()) for name in ("gcn", "gpn", "jknet", "gps")),
        ("ensemble", MemberCrossEntropy()),
        ("gcn", MARGIN),
    ],
)
def test_a_model_that_was_kept_scores_as_when_it_was_trained(toy, tmp_path, monkeypatch, name, objective):
    kept = TrainedModels(tmp_path / "models")
    plan = [Recipe("MSP", objective, MSP(), name)]

    def results() -> list[Result]:
        module._cached.clear()
        ((_, outcome),) = attempts(toy, plan, epochs=2, kept=kept)
        assert not isinstance(outcome, Exception)
        return outcome

    first = results()
    monkeypatch.setattr(module, "train", None)  # whoever trains now fails
    for before, again in zip(first, results(), strict=True):
        assert again.detection == before.detection
        assert (again.val_loss, again.epoch, again.accuracy) == (before.val_loss, before.epoch, before.accuracy)
        np.testing.assert_array_equal(again.id_scores, before.id_scores)
        assert again.seconds["train"] == before.seconds["train"]


def test_a_kept_model_that_was_changed_is_trained_again(toy, tmp_path):
    kept, plan = TrainedModels(tmp_path), [Recipe("MSP", CrossEntropy(), MSP())]
    ((_, first),) = attempts(toy, plan, epochs=2, kept=kept)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    module._cached.clear()
    ((_, again),) = attempts(toy, plan, epochs=2, kept=kept)
    assert [result.detection for result in again] == [result.detection for result in first]
    assert len({*tmp_path.iterdir()} - {path}) == 1


def test_another_exposure_graph_is_another_model(toy, tmp_path):
    kept, plan = TrainedModels(tmp_path), [Recipe("FT", MARGIN, MSP())]
    changed = toy.exposure.clone()
    changed.x = changed.x + 1
    other = replace(toy, exposure=changed)
    for benchmark, models in ((toy, 1), (toy, 1), (other, 2)):
        assert len(list(attempts(benchmark, plan, epochs=1, kept=kept))) == 1
        assert len(list(tmp_path.iterdir())) == models


def test_what_own_code_made_is_not_kept(toy, tmp_path):
    class Own(CrossEntropy):
        pass

    assert len(list(attempts(toy, [Recipe("own", Own(), MSP())], epochs=1, kept=TrainedModels(tmp_path)))) == 1
    assert not list(tmp_path.iterdir())


def test_a_propagated_method_shares_the_scores_of_the_method_alone(toy):
    class Counting(Energy):
        calls = 0

        def base_scores(self, outputs):
            Counting.calls += 1
            return super().base_scores(outputs)

    plan = [
        Recipe("alone", CrossEntropy(), Counting()),
        Recipe("K=2", CrossEntropy(), Propagated(Counting())),
        Recipe("GNNSafe", CrossEntropy(), GNNSafe()),
    ]
    results = {(result.method, result.ood): result for result in run(toy, plan, epochs=2)}
    assert Counting.calls == 3  # one ID graph, two OOD graphs
    for ood in toy.ood:
        assert results["K=2", ood].detection == results["GNNSafe", ood].detection
        assert results["K=2", ood].seconds["score"] > results["alone", ood].seconds["score"]


def test_scores_are_of_test_nodes_and_of_the_nodes_that_count(toy):
    result, other = run(toy, [Recipe("MSP", CrossEntropy(), MSP())], epochs=2)
    assert len(result.id_scores) == int(toy.id.test_mask.sum())
    assert len(result.ood_scores) == int(toy.exposure.mask.sum())
    assert len(other.ood_scores) == int(toy.id.val_mask.sum())
    assert result.detection != other.detection
    model = GCN(8, 64, 3)
    train(model, toy.id, objective=CrossEntropy(), epochs=2, seed=3)
    outputs = Outputs.of(model, prepare(toy.id))
    inside = MSP().score(outputs)[toy.id.test_mask]
    outside = MSP().score(Outputs.of(model, prepare(toy.exposure)))[toy.exposure.mask]
    np.testing.assert_array_equal(result.id_scores, inside)
    np.testing.assert_array_equal(result.ood_scores, outside)
    assert result.detection == detection(inside, outside)
    assert result.accuracy == accuracy(outputs.logits, toy.id.y, toy.id.test_mask)
    assert (result.dataset, result.shift, result.seed) == ("cora", "feature", 3)


def test_planted_nodes_are_told_from_the_id_nodes_of_their_own_graph(blocks):
    planted = shifts.planted(blocks, 0, kind="feature")
    benchmark = Benchmark("cora", "planted-feature", 0, blocks, None, {"planted": planted}, 3, "toy")
    (result,) = run(benchmark, [Recipe("MSP", CrossEntropy(), MSP())], epochs=2)
    model = GCN(8, 64, 3)
    train(model, blocks, objective=CrossEntropy(), epochs=2, seed=0)
    scores = MSP().score(Outputs.of(model, prepare(planted)))
    np.testing.assert_array_equal(result.id_scores, scores[blocks.test_mask & ~planted.mask])
    np.testing.assert_array_equal(result.ood_scores, scores[planted.mask])


def test_methods_are_fitted_on_training_nodes(toy):
    seen = []

    class Spy(MSP):
        def fit(self, outputs, y, mask):
            seen.append((y, mask))
            return self

    run(toy, [Recipe("spy", CrossEntropy(), Spy())], epochs=1)
    assert seen == [(toy.id.y, toy.id.train_mask)]


def test_a_recipe_that_fails_costs_no_other(toy):
    class Broken(MSP):
        def base_scores(self, outputs):
            raise RuntimeError("no")

    plan = [
        Recipe("broken", CrossEntropy(), Broken()),
        Recipe("diverges", EnergyMargin(-5.0, -1.0, 1e38), MSP()),
        Recipe("diverges too", EnergyMargin(-5.0, -1.0, 1e38), Energy()),
        Recipe("MSP", CrossEntropy(), MSP()),
    ]
    outcomes = [outcome for _, outcome in attempts(toy, plan, epochs=2)]
    assert repr(outcomes[0]) == "RuntimeError('no')"
    assert isinstance(outcomes[1], TrainingError)
    assert outcomes[1] is outcomes[2]  # trained once
    assert [result.ood for result in outcomes[3]] == ["a", "b"]
    assert set(outcomes[3][0].seconds) == {"train", "epoch", "forward", "score"}
    with pytest.raises(RuntimeError, match="no"):
        run(toy, plan, epochs=2)


@pytest.mark.usefixtures("registries")
def test_a_recipe_is_left_unfitted_and_names_its_model(toy):
    class Fitting(MSP):
        def fit(self, outputs, y, mask):
            self.seen = True
            return self

    @MODELS.register("other")
    class Other(GCN):
        """Another model."""

    method = Fitting()
    plan = [Recipe("gcn", CrossEntropy(), method), Recipe("other", CrossEntropy(), method, "other")]
    results = run(toy, plan, epochs=1)
    assert len(results) == 4
    assert not hasattr(method, "seen")


def test_a_seeds_figure_is_the_mean_over_its_graphs():
    records = [replace(result(seed, auroc), ood=ood) for seed, ood, auroc in
               ((0, "a", 0.5), (0, "b", 0.7), (1, "a", 0.7), (1, "b", 0.9))]  # fmt: skip
    (summary,) = summaries(records)
    assert summary.seeds == 2
    assert summary.metrics["auroc"] == pytest.approx((70.0, 200**0.5))


def result(seed: int, auroc: float, method: str = "MSP") -> Result:
    scores = np.zeros(1, dtype=np.float32)
    return Result("cora", "label", seed, method, Detection(auroc, 0.5, 0.5, 0.5, 0.5), 0.75, scores, scores, scores > 0)


def test_summaries_are_means_and_deviations_in_percent():
    first, second = summaries([result(0, 0.5), result(0, 0.9, "Energy"), result(1, 0.7)])
    assert (first.method, first.seeds, second.method, second.seeds) == ("MSP", 2, "Energy", 1)
    assert first.metrics["auroc"] == pytest.approx((60.0, 200**0.5))
    assert first.metrics["accuracy"] == pytest.approx((75.0, 0.0))
    assert second.metrics["auroc"] == (pytest.approx(90.0), None)


def test_the_mean_has_a_confidence_interval():
    """Three seeds 60, 70, 80: s = 10, and t with two degrees of freedom is 4.302653 at 97.5 %."""
    (summary,) = summaries([result(seed, auroc) for seed, auroc in enumerate((0.6, 0.7, 0.8))])
    assert summary.interval["auroc"] == pytest.approx(4.302653 * 10 / 3**0.5)
    low, high = t.interval(0.95, 2, loc=70, scale=sem((60, 70, 80)))
    assert summary.interval["auroc"] == pytest.approx((high - low) / 2)
    assert summary.interval["accuracy"] == pytest.approx(0.0)
    assert summaries([result(0, 0.5)])[0].interval["auroc"] is None


def test_real_cora_reaches_the_papers_figures(data_root):
    """Two seeds of the acceptance run (`gnnsafe demo --seeds 5`), against the same bars."""
    bars = {
        "structure": {"GNNSafe": 85.5, "GNNSafe++": 89.0, "accuracy": 75.0},
        "feature": {"GNNSafe": 91.0, "GNNSafe++": 94.5, "accuracy": 75.0},
        "label": {"GNNSafe": 92.0, "GNNSafe++": 92.5, "accuracy": 88.5},
    }
    for shift in PAPER_SHIFTS:
        results = [
            cell
            for seed in range(2)
            for cell in run(load_benchmark("cora", shift=shift, seed=seed, root=data_root), demo_recipes(shift))
        ]
        table = {summary.method: summary.metrics for summary in summaries(results)}
        for method in ("GNNSafe", "GNNSafe++"):
            assert table[method]["auroc"][0] >= bars[shift][method], (shift, method)
            assert table[method]["accuracy"][0] >= bars[shift]["accuracy"], (shift, method)
        assert table["GNNSafe"]["auroc"][0] > table["Energy"]["auroc"][0]  # propagation helps here
