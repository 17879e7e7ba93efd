from __future__ import annotations

import mmap
import multiprocessing
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnsafe.bench import study as module
from gnnsafe.bench.cores import each
from gnnsafe.bench.plan import Cell, Plan
from gnnsafe.bench.recipes import Recipe
from gnnsafe.bench.run import run
from gnnsafe.bench.store import read
from gnnsafe.bench.study import CellTask, data_fingerprint, demo_cell, given_up, memory_needed, tasks
from gnnsafe.methods import MSP
from gnnsafe.training import CrossEntropy, EnergyMargin

CELL = Cell("synthetic", "domain", 1, epochs=2)
PLAIN = Recipe("MSP", CrossEntropy(), MSP())


@pytest.fixture
def task(tmp_path) -> CellTask:
    return CellTask(CELL, [PLAIN], None, "data", "1.0", tmp_path)


def test_a_record_for_each_graph_explains_its_figures(task):
    records = task.carry_out()
    assert read(task.folder) == (records, 0)
    expected = run(CELL.benchmark(None), [PLAIN], epochs=2)
    assert [(r.ood, r.detection, r.accuracy) for r in records] == [(r.ood, r.detection, r.accuracy) for r in expected]
    near, far = records
    assert (near.ood, far.ood) == ("near", "far")
    assert (near.dataset, near.shift, near.seed, near.backbone) == ("synthetic", "domain", 1, "gcn")
    assert (near.protocol, near.epochs, near.exposure, near.error) == ("paper", 2, False, "")
    assert (near.method, near.method_repr, near.objective_repr) == ("MSP", "MSP()", "CrossEntropy()")
    assert near.model == "GCN(500, 64, 6)"
    assert near.source.startswith("the seed, a random split")
    assert (near.data, near.versions["gnnsafe"], near.versions["torch"]) == ("data", "1.0", torch.__version__)
    assert near.versions["numpy"] == np.__version__
    assert set(near.versions) == {"gnnsafe", "method", "torch", "python", "numpy", "scipy", "torch-geometric"}
    assert set(near.seconds) == {"train", "epoch", "forward", "score"}
    assert near.seconds["epoch"] == near.seconds["train"] / 2
    assert near.memory > 100
    assert near.created.endswith("+00:00")


def test_a_record_names_no_folder_above_the_data(monkeypatch):
    monkeypatch.setenv("GNNSAFE_DATA", "/srv/their/data")
    assert (
        module._public("/srv/their/data/Planetoid/Cora/raw, the public split", None)
        == "Planetoid/Cora/raw, the public split"
    )
    assert module._public("/mnt/d/Amazon/Photo/raw", "/mnt/d") == "Amazon/Photo/raw"
    assert module._public("the seed, a random split", None) == "the seed, a random split"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets a process forget its peak")
def test_memory_is_the_cells_own(task):
    with mmap.mmap(-1, 2**30) as held:  # which is given back for sure: glibc may keep what arrays leave behind
        for _ in range(2**10):
            held.write(b"1" * 2**20)
    peak = module._peak_memory()
    assert peak > 1024
    assert task.carry_out()[0].memory < peak - 512


def memory_before_and_after(task: CellTask) -> tuple[float, float]:
    """What a cell takes, and what it takes where the process has held 512 MiB more before."""
    before = task.carry_out()[0].memory
    torch.ones(2**27)
    return before, task.carry_out()[0].memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets a process forget its peak")
def test_memory_is_not_what_larger_cells_left_behind(task):
    """A worker keeps what it frees: Cora's cells were said to take what Arxiv's had."""
    for before, after in each(memory_before_and_after, [task, replace(task, data="other")], jobs=2):
        assert after < before + 128


def test_only_what_is_not_finished_is_run(task):
    more = replace(task, recipes=[PLAIN, Recipe("margin", EnergyMargin(-5.0, -1.0, 0.1), MSP())])
    (done,) = {record.key for record in task.carry_out()}
    assert [recipe.name for recipe in more.without({done}).recipes] == ["margin"]
    for other in (
        replace(task, data="other"),
        replace(task, version="1.1"),
        replace(task, cell=replace(CELL, epochs=3)),
        replace(task, recipes=[Recipe("MSP", EnergyMargin(-5.0, -1.0, 0.1), MSP())]),
    ):
        assert other.without({done}).recipes == other.recipes
        assert other.runs()[0].key != done


def test_failures_are_records_with_a_reason_of_one_line(task):
    class Broken(MSP):
        def base_scores(self, outputs):
            raise ValueError("a\nlong story")

    first, *others = replace(task, recipes=[Recipe("broken", CrossEntropy(), Broken()), PLAIN]).carry_out()
    assert (first.method, first.error, first.metrics) == ("broken", "ValueError: a long story", {})
    assert [record.error for record in others] == ["", ""]
    (lost,) = replace(task, cell=replace(CELL, shift="nowhere")).carry_out()
    assert lost.error.startswith("UnknownNameError: 'shift' must be one of")


def test_a_fingerprint_is_that_of_the_tensors(monkeypatch):
    assert data_fingerprint("synthetic", None) == data_fingerprint("synthetic", None)
    small = module.DATASETS["synthetic"].graph(None, 0)[0]

    def fingerprint_of(graph):
        monkeypatch.setitem(
            module.DATASETS, "synthetic", replace(module.DATASETS["synthetic"], graph=lambda *_: (graph, ""))
        )
        return data_fingerprint("synthetic", None)

    before = fingerprint_of(small)
    small.y[0] = (small.y[0] + 1) % 6
    assert fingerprint_of(small) != before


def test_graphs_of_a_data_set_with_shifts_of_its_own_count_all(data_root, monkeypatch):
    before, twitch = data_fingerprint("twitch", str(data_root)), module.DATASETS["twitch"]

    def changed(root, seed):
        parts, source = twitch.own["domain"](root, seed)
        parts[2]["RU"].x[0, 0] += 1
        return parts, source

    monkeypatch.setitem(module.DATASETS, "twitch", replace(twitch, own={"domain": changed}))
    assert data_fingerprint("twitch", str(data_root)) != before


def test_tasks_of_a_plan(tmp_path):
    plan = Plan(("synthetic",), ("label", "time"), ("msp",), seeds=2)
    work = tasks(plan.cells(), root=None, version="1", folder=tmp_path)
    assert [(task.cell.shift, task.cell.seed) for task in work] == [
        ("label", 0),
        ("time", 0),
        ("label", 1),
        ("time", 1),
    ]
    assert {task.data for task in work} == {data_fingerprint("synthetic", None)}
    assert [recipe.name for recipe in work[0].recipes] == ["MSP"]


def test_the_demos_cell():
    source, results = demo_cell(Cell("cora", "structure", 0, epochs=1), None)
    assert "graphdatascience" in source
    names = ["MSP", "Energy", "GNNSafe", "GNNSafe, keep", "GNNSafe++", "TwoScale"]
    assert [result.method for result in results] == names


def test_a_task_whose_process_was_ended_is_a_failed_record_unless_it_was_finished(task):
    other = replace(task, recipes=[PLAIN, Recipe("Louder", CrossEntropy(), MSP(), lr=0.1)])
    task.carry_out()
    assert given_up([other]) == 1
    records, _ = read(task.folder)
    (failed,) = [record for record in records if record.error]
    assert failed.method == "Louder"
    assert failed.error.startswith("WorkerError: a worker process was ended from outside, perhaps for want of memory")
    assert given_up([task]) == 1
    assert len(read(task.folder)[0]) == len(records)


def test_tasks_after_the_one_whose_process_was_ended_are_carried_out(task):
    first, *others = (replace(task, cell=replace(CELL, seed=seed)) for seed in (2, 3, 4))
    task.carry_out()
    assert given_up([task, first, *others]) == 4
    assert {record.seed for record in read(task.folder)[0] if record.error} == {2}
    assert {record.seed for record in read(task.folder)[0] if not record.error} == {1, 3, 4}
    assert not multiprocessing.active_children()


def test_memory_by_the_largest_data_set(task):
    assert memory_needed([]) < memory_needed([task])
    arxiv = replace(task, cell=replace(CELL, dataset="arxiv-topics", shift="time"))
    assert 3000 < memory_needed([task, arxiv]) < 8000
