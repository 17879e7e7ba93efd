"""Times of several ways to do one thing, taken in turns in one process; and what the machine can do at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import torch

Blocks = Callable[[], Sequence[float]]

clock: Callable[[], float] = perf_counter


def count_cpu_time() -> None:
    """One thread, and the time that it computes instead of the time that passes: for a machine that others use."""
    global clock
    clock = process_time
    torch.set_num_threads(1)


class Work(NamedTuple):
    """What must at least be done: bytes moved (each operand once) and multiplications and additions."""

    bytes: float
    flops: float

    def __add__(self, other: Work) -> Work:  # type: ignore[override]
        return Work(self.bytes + other.bytes, self.flops + other.flops)


class Machine(NamedTuple):
    """Measured limits: bytes and operations per second."""

    bandwidth: float
    flops: float

    def bound(self, work: Work) -> float:
        """The least seconds that the work can take."""
        return max(work.bytes / self.bandwidth, work.flops / self.flops)


def machine() -> Machine:
    """Bandwidth of a copy that no cache holds; operations of a large float32 product. The best of several."""
    source, target = torch.rand(2**26), torch.empty(2**26)
    square = torch.rand(2048, 2048)
    copies = [seconds(lambda: target.copy_(source)) for _ in range(7)]
    products = [seconds(lambda: square @ square) for _ in range(7)]
    return Machine(2 * 4 * 2**26 / min(copies), 2 * 2048**3 / min(products))


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = clock()
    call()
    return clock() - start


def once(call: Callable[[], object]) -> Blocks:
    """A block of one call."""
    return lambda: [seconds(call)]


def several(call: Callable[[], object], *, at_most: int = 10, within: float = 0.2) -> Blocks:
    """A block of calls after one that warms up, since another way ran before it: a few, or one where it is slow."""

    def block() -> Sequence[float]:
        first, taken = seconds(call), [seconds(call)]
        while first + sum(taken) < within and len(taken) < at_most:
            taken.append(seconds(call))
        return taken

    return block


def in_turns(ways: Sequence[Blocks], *, budget: float, most: int = 30, warm: bool = True) -> list[float]:
    """The median seconds of each way: one block of each in turn, after a first turn that is not counted.

    Where that would take minutes there is no such turn (`warm`).
    """
    for way in ways if warm else ():
        way()
    times: list[list[float]] = [[] for _ in ways]
    start, turns = perf_counter(), 0
    while not turns or (perf_counter() - start < budget and turns < most):
        turns += 1
        for way, taken in zip(ways, times, strict=True):
            taken += way()
    return [median(taken) for taken in times]
