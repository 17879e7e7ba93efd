from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gnnsafe import cli, load_benchmark
from gnnsafe.bench import paper
from gnnsafe.bench.plan import Cell, Plan
from gnnsafe.bench.recipes import Recipe
from gnnsafe.bench.run import attempts
from gnnsafe.bench.search import FOLDER, SEARCH_STEPS, Trial, blind, settled, trials
from gnnsafe.bench.store import read
from gnnsafe.bench.study import CellTask, tasks
from gnnsafe.cli import bench as module
from gnnsafe.methods import MSP, Energy, GNNSafe
from gnnsafe.training import CrossEntropy, EnergyMargin

RATES, MARGINS = SEARCH_STEPS
TINY = ["bench", "--datasets", "synthetic", "--shifts", "label,feature", "--methods", "gnnsafe,msp,gnnsafe++",
        "--epochs", "2", "--seeds", "2", "--jobs", "1", "--search"]  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    """Two learning rates and three margins."""
    monkeypatch.setattr(paper, "LEARNING_RATES", (0.1, 0.01))
    monkeypatch.setattr(paper, "GRID", [(-9.0, -1.0, 0.1), (-7.0, -2.0, 1.0), (-5.0, -4.0, 0.01)])


class Forbidden(dict):
    """OOD test data that nobody may look at."""

    def __getattribute__(self, name):
        raise AssertionError(f"test data were asked for: {name}")

    __getitem__ = __iter__ = __len__ = __contains__ = __eq__ = __bool__ = __getattribute__


def test_the_papers_grids():
    assert paper.LEARNING_RATES == (0.1, 0.01, 0.001)
    assert len(paper.GRID) == len(set(paper.GRID)) == 3 * 4 * 3
    for column, values in enumerate(({-9, -7, -5}, {-1, -2, -3, -4}, {0.01, 0.1, 1})):
        assert {margins[column] for margins in paper.GRID} == values


def test_half_of_the_exposure_nodes_stand_for_ood_nodes_and_validation_nodes_for_test_nodes():
    benchmark = load_benchmark("synthetic", shift="label", nodes=200, edges=800, features=30)
    view = blind(benchmark)
    ((name, unseen),) = view.ood.items()
    assert name == "exposure"
    assert (view.exposure.mask ^ unseen.mask == benchmark.exposure.mask).all()
    assert not (view.exposure.mask & unseen.mask).any()
    assert 0 <= view.exposure.mask.sum() - unseen.mask.sum() <= 1
    assert (view.id.test_mask == benchmark.id.val_mask).all()
    assert (view.id.val_mask == benchmark.id.val_mask).all()
    assert not (view.id.test_mask & benchmark.id.test_mask).any()
    assert not any((graph.mask & benchmark.ood["label"].mask).any() for graph in (view.exposure, unseen))
    assert (blind(benchmark).exposure.mask == view.exposure.mask).all()
    assert (blind(replace(benchmark, seed=1)).exposure.mask != view.exposure.mask).any()
    assert benchmark.exposure.mask.sum() == view.exposure.mask.sum() + unseen.mask.sum()  # left as it was


def test_planted_exposure_nodes_are_told_from_validation_nodes_of_their_own_graph():
    benchmark = load_benchmark("synthetic", shift="planted-feature", nodes=200, edges=800, features=30)
    unseen = blind(benchmark).ood["exposure"]
    assert (unseen.test_mask == benchmark.id.val_mask).all()
    assert (unseen.x == benchmark.exposure.x).all()


def test_without_exposure_nodes_the_loss_is_all(tmp_path):
    benchmark = blind(replace(load_benchmark("synthetic", shift="label"), exposure=None))
    assert benchmark.exposure is None
    (graph,) = benchmark.ood.values()
    assert (graph.mask == benchmark.id.val_mask).all()


@pytest.mark.parametrize("shift", ["label", "feature", "planted-feature", "domain"])
@pytest.mark.parametrize("protocol", ["paper", "rigorous"])
def test_a_trial_never_touches_test_data(shift, protocol, tmp_path, monkeypatch):
    """Neither OOD test data nor the ID test nodes: poisoned, they change no figure."""
    margin = EnergyMargin(-5.0, -1.0, 0.1)
    recipes = [Recipe("GNNSafe++", margin, GNNSafe()), RATES.tried(Recipe("MSP", CrossEntropy(), MSP()))]
    trial = Trial(Cell("synthetic", shift, 0, protocol=protocol, epochs=2), recipes, None, "data", "1", tmp_path)
    real = Cell.benchmark

    def poisoned(cell, root):
        benchmark = real(cell, root)
        benchmark.id.y = benchmark.id.y.where(benchmark.id.train_mask | benchmark.id.val_mask, -1)
        del benchmark.id.test_mask
        if "test_mask" in benchmark.exposure:
            benchmark.exposure.test_mask = torch.ones(3)
        return replace(benchmark, ood=Forbidden())

    expected = trial.carry_out()
    monkeypatch.setattr(Cell, "benchmark", poisoned)
    found = trial.carry_out()
    assert [(r.error, r.metrics, r.val_loss) for r in found] == [("", r.metrics, r.val_loss) for r in expected]
    with pytest.raises(AssertionError, match="test data were asked for"):  # and what is no trial would touch them
        CellTask(trial.cell, recipes, None, "data", "1", tmp_path).benchmark().ood.items()


def test_learning_rates_are_tried_once_for_each_training_and_margins_for_each_recipe(tmp_path):
    plan = Plan(("cora",), ("label", "feature"), ("msp", "gnnsafe", "energy-ft", "gnnsafe++", "gpn"), seeds=3)
    work = [CellTask(cell, recipes, None, "data", "1", tmp_path) for cell, recipes in plan.cells()]
    rates = trials(work, RATES)
    assert {(trial.cell.seed, trial.folder) for trial in rates} == {(0, tmp_path / FOLDER)}
    assert len(rates) == 2 * 4 * 3  # shifts × (cross-entropy, two margins, GPN's) × rates
    margins = trials(work, MARGINS)
    assert len(margins) == 2 * 2 * 36
    (recipe,) = margins[0].recipes
    assert (recipe.name, recipe.objective.steps, recipe.method) == ("Energy FT", 0, Energy())
    assert {(trial.recipes[0].objective.t_in, trial.recipes[0].objective.t_out, trial.recipes[0].objective.weight)
            for trial in margins} == set(paper.GRID)  # fmt: skip


def outcomes(work, step, figure):
    """A record for each trial, with the loss or AUROC that `figure` gives for its cell and recipe."""
    records = []
    for trial in trials(work, step):
        (run,) = trial.runs()
        value = figure(trial.cell, trial.recipes[0])
        if value is None:
            records.append(replace(run, error="TrainingError: diverged"))
        else:
            records.append(replace(run, val_loss=value, metrics={"auroc": value}))
    return records


def work_of(protocol, tmp_path, methods=("gnnsafe", "gnnsafe++")):
    plan = Plan(("cora",), ("feature", "label"), methods, seeds=2, protocol=protocol)
    return [CellTask(cell, recipes, None, "data", "1", tmp_path) for cell, recipes in plan.cells()]


LOSSES = {"feature": {0.1: 1.0, 0.01: 3.0, 0.001: 1.9}, "label": {0.1: 5.0, 0.01: 2.0, 0.001: 2.1}}


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [("paper", {"feature": 0.1, "label": 0.01}), ("rigorous", {"feature": 0.001, "label": 0.001})],
)
def test_the_lowest_validation_loss_decides_for_all_seeds(protocol, expected, tmp_path):
    """Means over the two shifts: 3.0, 2.5 and 2.0."""
    work = work_of(protocol, tmp_path)
    records = outcomes(work, RATES, lambda cell, recipe: LOSSES[cell.shift][recipe.lr])
    for task in settled(work, RATES, records):
        for recipe in task.recipes:
            assert recipe.lr == expected[task.cell.shift]
            where = ", mean over feature, label" if protocol == "rigorous" else ""
            reason = f"{recipe.lr}, lowest ID validation loss among 0.1, 0.01, 0.001{where}"
            assert recipe.chosen["lr"] == task.record(recipe).chosen["lr"] == reason


def test_the_highest_auroc_decides_on_margins(tmp_path):
    work = work_of("paper", tmp_path)
    best = {"feature": (-7.0, -3.0, 0.1), "label": (-9.0, -4.0, 1.0)}

    def auroc(cell, recipe):
        objective = recipe.objective
        return 0.9 if (objective.t_in, objective.t_out, objective.weight) == best[cell.shift] else 0.8

    before = {recipe.name: recipe for recipe in work[0].recipes}
    for task in settled(work, MARGINS, outcomes(work, MARGINS, auroc)):
        plain, margin = task.recipes
        assert plain == before["GNNSafe"]
        assert margin.objective == EnergyMargin(*best[task.cell.shift], isolated="decay")
    assert margin.chosen == {
        "lr": "0.01, as in the published runs",
        "margins": "t_in -9, t_out -4, λ 1, highest AUROC of ID validation against held-out exposure nodes among 36",
    }


def test_a_value_of_which_a_trial_failed_is_not_chosen(tmp_path):
    work = work_of("rigorous", tmp_path)
    losses = {**LOSSES, "label": {0.1: 9.0, 0.01: 2.0, 0.001: None}}
    task, *_ = settled(work, RATES, outcomes(work, RATES, lambda cell, recipe: losses[cell.shift][recipe.lr]))
    assert {recipe.lr for recipe in task.recipes} == {0.01}
    task, *_ = settled(work, RATES, outcomes(work, RATES, lambda *_: None))
    assert [(recipe.lr, recipe.chosen["lr"]) for recipe in task.recipes] == [(0.01, "0.01, every trial failed")] * 2


def test_the_first_of_equals_is_chosen(tmp_path):
    work = work_of("paper", tmp_path)
    task, *_ = settled(work, MARGINS, outcomes(work, MARGINS, lambda *_: 1.0))
    assert task.recipes[1].objective == EnergyMargin(*paper.GRID[0], isolated="decay")


def test_a_search_is_run_once_and_explained_in_every_record(small, tmp_path, capsys, monkeypatch):
    assert cli.main([*TINY, "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        f"8 trials of lr, 0 of them finished before; records are kept in {tmp_path / FOLDER}",
        f"6 trials of margins, 0 of them finished before; records are kept in {tmp_path / FOLDER}",
        f"4 cells, 0 of them finished before; records are kept in {tmp_path}",
    ]
    tried, records = read(tmp_path / FOLDER)[0], read(tmp_path)[0]
    assert (len(tried), len(records)) == (14, 2 * 2 * 3)
    by_lr = {}
    for trial in tried:
        if (trial.method, trial.objective_repr) == ("search", "CrossEntropy()"):
            by_lr.setdefault(trial.lr, []).append(trial.val_loss)
    best = min(by_lr, key=lambda lr: sum(by_lr[lr]))
    assert {record.lr for record in records if record.method in ("GNNSafe", "MSP")} == {best}
    (objective,) = {record.objective_repr for record in records if record.method == "GNNSafe++"}  # one for all shifts
    assert objective in {trial.objective_repr for trial in tried}
    for record in records:
        assert set(record.chosen) == ({"lr", "margins"} if record.method == "GNNSafe++" else {"lr"})
        assert all(text.endswith("mean over feature, label") for text in record.chosen.values())
        assert 0 < record.val_loss < 100
    monkeypatch.setattr(module, "each", lambda function, items, **_: iter(items and [1 / 0]))  # nothing is left
    assert cli.main([*TINY, "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == out


def test_values_that_were_chosen_and_values_that_were_not_are_never_mixed(small, tmp_path, capsys):
    assert cli.main([*TINY, "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert cli.main([*TINY[:-1], "--out", str(tmp_path)]) == 0
    assert "gnnsafe: 4 records of other settings for GNNSafe++ are left out\n" in capsys.readouterr().err


def test_an_interrupted_search_goes_on_where_it_was(small, tmp_path, capsys, monkeypatch):
    def interrupted(function, items, **_):
        for item in items[:3]:
            yield function(item)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "each", interrupted)
        assert cli.main([*TINY, "--out", str(tmp_path)]) == 130
    folder = tmp_path / FOLDER
    assert capsys.readouterr().err.endswith(
        f"gnnsafe: interrupted; 3 of 8 trials of lr are kept in {folder}; the same command goes on from there\n"
    )
    before = {path: path.read_bytes() for path in folder.glob("*.jsonl")}
    assert len(before) == 3
    assert cli.main([*TINY, "--out", str(tmp_path)]) == 0
    assert "8 trials of lr, 3 of them finished before" in capsys.readouterr().err
    assert all(path.read_bytes() == content for path, content in before.items())


def test_failed_trials_are_told(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(paper, "LEARNING_RATES", (1e30, 0.01))
    assert cli.main([*TINY, "--out", str(tmp_path)]) == 0
    assert "gnnsafe: 4 trials failed, and their values are not chosen\n" in capsys.readouterr().err
    assert {record.lr for record in read(tmp_path)[0]} == {0.01}


def test_methods_without_margins_have_no_trials_of_them(small, tmp_path, capsys):
    command = [text.replace("gnnsafe,msp,gnnsafe++", "msp") for text in TINY]
    assert cli.main([*command, "--out", str(tmp_path)]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == ["4 trials of lr", "4 cells"]


def test_a_plan_file_may_ask_for_it(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(module, "tasks", lambda *_, **__: [])
    monkeypatch.setattr(module.search, "trials", lambda work, step: seen.append(step.name) or [])
    path = tmp_path / "plan.toml"
    path.write_text('datasets = ["synthetic"]\nsearch = true\n')
    assert cli.main(["bench", "--plan", str(path), "--out", str(tmp_path)]) == 0
    assert seen == ["lr", "margins"]
    assert cli.main(["bench", "--datasets", "synthetic", "--out", str(tmp_path)]) == 0
    assert len(seen) == 2


def test_tasks_and_trials_know_the_same(tmp_path):
    cells = Plan(("synthetic",), ("label",), ("gnnsafe++",), seeds=1).cells()
    work = tasks(cells, root=None, version="1", folder=tmp_path)
    trial = trials(work, MARGINS)[0]
    assert replace(trial, recipes=work[0].recipes, folder=tmp_path).runs()[0].key == work[0].runs()[0].key


class TestSelectionByTestData:
    """For the audit alone."""

    SETTINGS = (*TINY[:-1], "--selection", "test")

    def test_epoch_and_values_are_those_of_the_highest_test_auroc(self, small, tmp_path, capsys):
        honest = [part for part in TINY if part != "--search"]
        assert cli.main([*honest, "--out", str(tmp_path)]) == 0
        assert cli.main([*self.SETTINGS, "--out", str(tmp_path)]) == 0
        records, _ = read(tmp_path)
        chosen = [record for record in records if record.selection == "test"]
        assert len(chosen) == len(records) / 2
        assert all("highest AUROC on test data" in record.chosen["lr"] for record in chosen)
        exposed = [record for record in chosen if record.method == "GNNSafe++"]
        assert all("highest AUROC on test data" in record.chosen["margins"] for record in exposed)
        assert all(0 <= record.epoch < 2 for record in records)
        for one in chosen:  # no worse than the honest one in the cell that chose, whose values were among those tried
            (other,) = [
                r for r in records if r.selection == "validation"
                if (r.method, r.shift, r.seed) == (one.method, one.shift, one.seed)
            ]  # fmt: skip
            if one.seed == 0 and one.method != "GNNSafe++" and one.lr == other.lr:
                assert one.metrics["auroc"] >= other.metrics["auroc"] - 1e-9
        printed = capsys.readouterr().out
        assert "so no honest figure, and never ranked" in " ".join(printed.split())

    def test_alone_it_says_what_is_missing(self, small, tmp_path, capsys):
        assert cli.main([*self.SETTINGS, "--out", str(tmp_path)]) == 0
        assert "run the same with '--search' instead" in " ".join(capsys.readouterr().out.split())

    def test_the_best_epoch_is_chosen_recipe_by_recipe(self):
        benchmark = load_benchmark("synthetic", shift="feature", nodes=300, edges=1200, features=40)
        table = [Recipe(name, CrossEntropy(), method) for name, method in (("Energy", Energy()), ("MSP", MSP()))]
        audited = {recipe.name: outcome for recipe, outcome in attempts(benchmark, table, epochs=25, selection="test")}
        honest = {recipe.name: outcome for recipe, outcome in attempts(benchmark, table, epochs=25)}
        for name in audited:
            assert audited[name][0].epoch in {9, 19, 24, honest[name][0].epoch}
            assert audited[name][0].detection.auroc >= honest[name][0].detection.auroc

    def test_a_training_that_fails_costs_its_recipes_alone(self):
        benchmark = load_benchmark("synthetic", shift="feature", nodes=300, edges=1200, features=40)
        benchmark = replace(benchmark, exposure=None)
        table = [Recipe("Energy", CrossEntropy(), Energy()), Recipe("FT", EnergyMargin(-5.0, -1.0, 0.1), Energy())]
        outcomes = {recipe.name: outcome for recipe, outcome in attempts(benchmark, table, epochs=2, selection="test")}
        assert isinstance(outcomes["FT"], Exception)
        assert outcomes["Energy"][0].epoch == 1 or outcomes["Energy"][0].epoch == 0
