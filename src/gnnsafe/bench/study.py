"""A study: many cells, each one data set under one shift with one seed, over the machine's cores."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

import torch

from gnnsafe.bench.paper import recipes
from gnnsafe.bench.run import Result, run
from gnnsafe.datasets import load_benchmark

__all__ = ["Cell", "study"]

CELLS_PER_WORKER = 3  # fewer are not worth a worker's start: importing torch and PyG takes it some seconds


@dataclass(frozen=True)
class Cell:
    """What one cell needs to be run, here or in another process."""

    dataset: str
    shift: str
    seed: int
    root: str | None = None
    epochs: int = 200

    def run(self) -> tuple[str, list[Result]]:
        """Where the data came from, and the results of the paper's recipes.

        On one thread: matrices this small gain little from two, and the figures then do not depend on how many cores
        the machine has.
        """
        with _threads(1):
            benchmark = load_benchmark(self.dataset, shift=self.shift, seed=self.seed, root=self.root)
            return benchmark.source, run(benchmark, recipes(self.dataset, self.shift), epochs=self.epochs)


def study(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Result]]]:
    """What each cell gave, in their order, as it comes in; from six cells on by one process per core."""
    jobs = min(os.cpu_count() or 1, len(cells) // CELLS_PER_WORKER)
    if jobs <= 1:
        yield from map(Cell.run, cells)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        with _interrupts_ignored():  # by the workers, which inherit it: Ctrl-C is the parent's business
            results = pool.map(Cell.run, cells)
        yield from results
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
