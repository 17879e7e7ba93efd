"""Work spread over the machine's cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import TypeVar

import torch

from gnnsafe.errors import WorkerError

__all__ = ["each"]

Item = TypeVar("Item")
Value = TypeVar("Value")

ITEMS_PER_WORKER = 3  # fewer are not worth a worker's start: importing torch and PyG takes it some seconds


def each(function: Callable[[Item], Value], items: Sequence[Item], *, jobs: int | None = None) -> Iterator[Value]:
    """What `function` gives for each item, in their order, as it comes in; by one process per core unless told.

    Every item is worked on by one thread: matrices this small gain little from two, and the figures then do not depend
    on how many cores the machine has. Where this is left early, workers are ended with what they have in hand.
    """
    work = partial(_on_one_thread, function)
    jobs = min(os.cpu_count() or 1, len(items) // ITEMS_PER_WORKER) if jobs is None else min(jobs, len(items))
    if jobs <= 1:
        yield from map(work, items)
        return
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _end_with_parent)
    try:
        with _interrupts_ignored():  # by the workers, which inherit it: Ctrl-C is the parent's business
            values = pool.map(work, items)
        yield from values
    except BrokenProcessPool:
        raise WorkerError(
            "a worker process was ended from outside, perhaps for want of memory; try fewer --jobs"
        ) from None
    finally:
        for worker in multiprocessing.active_children():
            if worker not in others:
                worker.terminate()
        pool.shutdown(cancel_futures=True)


def _on_one_thread(function: Callable[[Item], Value], item: Item) -> Value:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return function(item)
    finally:
        torch.set_num_threads(before)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
