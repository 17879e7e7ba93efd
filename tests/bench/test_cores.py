from __future__ import annotations

import multiprocessing
import os
import signal
from itertools import islice

import pytest
import torch

from gnnsafe.bench import cores
from gnnsafe.bench.cores import each
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
