from __future__ import annotations

import multiprocessing
import os
import signal
import time
from functools import partial

import pytest
import torch

from gnnsafe.bench import cores
from gnnsafe.bench.cores import each
from gnnsafe.bench.plan import Cell
from gnnsafe.bench.study import demo_cell
from gnnsafe.errors import InputError, WorkerError


def own_process(number: int) -> tuple[int, int, int]:
    return number, os.getpid(), torch.get_num_threads()


def test_items_are_spread_over_processes_and_come_back_in_order():
    numbers, processes, threads = zip(*each(own_process, range(6), jobs=2), strict=True)
    assert numbers == tuple(range(6))
    assert os.getpid() not in processes
    assert len(set(processes)) <= 2
    assert set(threads) == {1}
    assert not multiprocessing.active_children()


def test_few_items_start_no_process(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(cores, "ProcessPoolExecutor", None)
    before = torch.get_num_threads()
    assert list(each(own_process, range(5))) == [(number, os.getpid(), 1) for number in range(5)]
    assert list(each(own_process, [7], jobs=4)) == [(7, os.getpid(), 1)]
    assert torch.get_num_threads() == before


def test_a_mistake_in_a_process_is_the_same_mistake_here():
    cells = [Cell("cora", "label", seed) for seed in range(2)]
    with pytest.raises(InputError, match=r"'root' must be a folder \(got '/no/where'\)"):
        list(each(partial(demo_cell, root="/no/where"), cells, jobs=2))


def end(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_ended_is_told_in_one_line():
    with pytest.raises(WorkerError, match="a worker process was ended from outside"):
        list(each(end, range(2), jobs=2))


def test_who_leaves_early_leaves_no_worker_behind():
    values = each(partial(max, 0), [0, 0], jobs=2)
    assert next(values) == 0
    values.close()
    deadline = time.monotonic() + 20
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not multiprocessing.active_children()
