"""Work spread over the machine's cores."""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeVar

import torch

from gnnsafe.errors import WorkerError

__all__ = ["ENDED", "each", "free_memory", "give_back_memory", "keep_freed_memory", "usual_jobs"]

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Value = TypeVar("Value")

ENDED = "a worker process was ended from outside, perhaps for want of memory"
MALLOC = {-3: 2**30, -1: 2**31 - 1}  # glibc's M_MMAP_THRESHOLD and M_TRIM_THRESHOLD
CGROUP = Path("/sys/fs/cgroup")
ITEMS_PER_WORKER = 3  # fewer are not worth a worker's start: importing torch and PyG takes it some seconds


def each(
    function: Callable[[Item], Value],
    items: Sequence[Item],
    *,
    jobs: int | None = None,
    lost: Callable[[Item], Value] | None = None,
    memory: float | None = None,
) -> Iterator[Value]:
    """What `function` gives for each item, in their order, as it comes in; by one process per core by default.

    One alone is this process itself, unless memory is short and its end would be that of all items.
    Every item is worked on by one thread: matrices this small gain little from two, and the figures then do not depend
    on how many cores the machine has. Where this is left early, workers are ended with what they have in hand.

    Args:
        function: What is done with each item.
        items: Of which workers take the next as they get free.
        jobs: How many processes; by default one per core, and no more than there is memory for.
        lost: What stands for an item whose worker was ended from outside, as the kernel does for want of memory, once
            it was tried again by itself; without it that is an error.
        memory: What an item may need, in MiB.

    Raises:
        WorkerError: A worker was ended from outside, and there is no `lost`.
    """
    work = partial(_on_one_thread, function)
    jobs = max(1, usual_jobs(len(items), memory) if jobs is None else min(jobs, len(items)))
    log.info("%d items of work by %d processes", len(items), jobs)
    if jobs == 1 and (lost is None or _roomy(memory)):
        keep_freed_memory()
        yield from map(work, items)
        return
    start = 0
    while start < len(items):
        for value in _together(work, items[start:], jobs):
            if isinstance(value, BrokenProcessPool):
                break
            yield value
            start += 1
        else:
            return
        if lost is None:
            raise WorkerError(f"{ENDED}; try fewer --jobs")
        for item in items[start : start + jobs]:  # workers take items in turn: one of these was in its hands
            (value,) = _together(work, [item], 1)
            yield lost(item) if isinstance(value, BrokenProcessPool) else value
            start += 1


def usual_jobs(items: int, memory: float | None = None) -> int:
    """One for each core, fewer where so many items, which may need `memory` MiB each, have no room beside each other.

    Never more than a third of the items: fewer are not worth a worker's start.
    """
    jobs, free = min(os.cpu_count() or 1, items // ITEMS_PER_WORKER), free_memory()
    return jobs if memory is None or free is None else max(1, min(jobs, int(free // memory)))


def _roomy(memory: float | None) -> bool:
    """Whether there is room for two items: without it one may be ended for want of memory, so not in this process."""
    free = free_memory()
    return memory is None or free is None or free >= 2 * memory


def free_memory() -> float | None:
    """MiB that processes may still take, of the machine or of the group that this one is in; None where unknown."""
    found = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) / 2**10)
    with suppress(OSError, ValueError):  # "max" is no number
        limit, used = (int((CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        found.append((limit - used) / 2**20)
    return min(found, default=None)


def _together(work: Callable[[Item], Value], items: Sequence[Item], jobs: int) -> Iterator[Value | BrokenProcessPool]:
    """What comes of the items, in their order; in place of the first that a dead worker took along, that error."""
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _started)
    try:
        with _interrupts_ignored():  # by the workers, which inherit it: Ctrl-C is the parent's business
            values = pool.map(work, items)
        yield from values
    except BrokenProcessPool as error:
        yield error
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


def keep_freed_memory() -> None:
    """Have glibc keep what large tensors leave behind; elsewhere nothing.

    By default it gives large pieces back at once, and every epoch's tensors are fresh pages, which the kernel has to
    fetch and clear: a third of the CPU time of GPN's flows (benchmarks/allocator.py).
    """
    with suppress(OSError, AttributeError):  # not glibc
        libc = ctypes.CDLL(None)
        for option, size in MALLOC.items():
            libc.mallopt(option, size)


def give_back_memory() -> None:
    """Have glibc give the system what was kept, so that a process holds what its next work needs, not its last."""
    gc.collect()
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _started() -> None:
    keep_freed_memory()
    _end_with_parent()


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
