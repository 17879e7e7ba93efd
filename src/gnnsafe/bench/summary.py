"""Figures of several seeds and OOD graphs as one: mean and deviation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, stdev

from gnnsafe.bench.run import Result
from gnnsafe.bench.store import Record
from gnnsafe.metrics import Detection

__all__ = ["Summary", "summaries"]


@dataclass(frozen=True)
class Summary:
    """One method under one shift over all seeds: mean and standard deviation (none from one seed) in percent."""

    dataset: str
    shift: str
    method: str
    seeds: int
    metrics: dict[str, tuple[float, float | None]]


def summaries(results: Iterable[Result | Record]) -> list[Summary]:
    """Results grouped by data set, shift and method, in the order in which these first appear.

    A seed's figure is the mean over its OOD graphs; the deviation is that of seeds.
    """
    groups: dict[tuple[str, str, str], dict[int, list[Result | Record]]] = {}
    for result in results:
        seeds = groups.setdefault((result.dataset, result.shift, result.method), {})
        seeds.setdefault(result.seed, []).append(result)
    return [Summary(*key, len(seeds), _spread(list(seeds.values()))) for key, seeds in groups.items()]


def _spread(seeds: list[list[Result | Record]]) -> dict[str, tuple[float, float | None]]:
    rows = [[(*result.detection, result.accuracy) for result in seed] for seed in seeds]
    columns = zip(*[map(mean, zip(*row, strict=True)) for row in rows], strict=True)
    return {
        name: (100 * mean(values), 100 * stdev(values) if len(values) > 1 else None)
        for name, values in zip((*Detection._fields, "accuracy"), columns, strict=True)
    }
