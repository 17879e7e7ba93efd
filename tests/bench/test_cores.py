from __future__ import annotations

import multiprocessing
import os
import signal
from itertools import islice

import pytest
import torch

from gnnsafe.bench import cores
from gnnsafe.bench.cores import each, free_memory, usual_jobs
from gnnsafe.errors import InputError, WorkerError


def own_process(number: int) -> tuple[int, int, int]:
    if number < 0:
        raise InputError(f"'number' must be >= 0 (got {number})")
    return number, os.getpid(), torch.get_num_threads()


def test_items_are_spread_over_processes_and_come_back_in_order():
    values = each(own_process, [*range(6), -1, 7], jobs=2)
    numbers, processes, threads = zip(*islice(values, 6), strict=True)
    assert numbers == tuple(range(6))
    assert os.getpid() not in processes
    assert len(set(processes)) <= 2
    assert set(threads) == {1}
    with pytest.raises(InputError, match=r"'number' must be >= 0 \(got -1\)"):  # a mistake there is one here
        next(values)
    assert not multiprocessing.active_children()


def test_few_items_start_no_process(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(cores, "ProcessPoolExecutor", None)
    before = torch.get_num_threads()
    assert list(each(own_process, range(5))) == [(number, os.getpid(), 1) for number in range(5)]
    assert list(each(own_process, [7], jobs=4)) == [(7, os.getpid(), 1)]
    assert torch.get_num_threads() == before


def end(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_ended_is_told_in_one_line():
    with pytest.raises(WorkerError, match="a worker process was ended from outside"):
        list(each(end, range(2), jobs=2))


def end_if_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_what_a_dead_worker_had_is_lost_and_nothing_else():
    found = list(each(end_if_three, range(7), jobs=2, lost=lambda number: -number))
    assert found == [0, 1, 2, -3, 4, 5, 6]
    assert not multiprocessing.active_children()


def end_at_first(path: str) -> str:
    """Ended the first time, as where another needs the memory."""
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii"):
            os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def test_who_has_room_alone_is_not_lost(tmp_path):
    there = tmp_path / "there"
    there.touch()
    paths = [str(tmp_path / "new"), *[str(there)] * 4]
    assert list(each(end_at_first, paths, jobs=2, lost=lambda path: "lost")) == ["done"] * 5


@pytest.mark.parametrize("jobs", [None, 1])
def test_where_memory_is_short_one_that_is_ended_ends_no_other(monkeypatch, jobs):
    monkeypatch.setattr(cores, "free_memory", lambda: 1500.0)
    found = each(end_if_three, range(5), jobs=jobs, lost=lambda number: -number, memory=1000.0)
    assert list(found) == [0, 1, 2, -3, 4]


def test_jobs_by_cores_and_by_memory(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(cores, "free_memory", lambda: 4000.0)
    assert [usual_jobs(items) for items in (100, 9, 2)] == [8, 3, 0]
    assert [usual_jobs(100, memory) for memory in (100.0, 900.0, 1500.0, 9000.0)] == [8, 4, 2, 1]
    monkeypatch.setattr(cores, "free_memory", lambda: None)
    assert usual_jobs(100, 9000.0) == 8


def test_free_memory_is_that_of_the_machine_or_of_the_group(monkeypatch, tmp_path):
    free = free_memory()
    if free is None:
        pytest.skip("no Linux")
    assert 1 < free < 2**30
    (tmp_path / "memory.max").write_text(str(50 * 2**20))
    (tmp_path / "memory.current").write_text(str(20 * 2**20))
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    assert free_memory() == 30.0
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory() > 30.0
