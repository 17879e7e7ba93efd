"""Figures of several seeds and OOD graphs as one: mean, deviation and confidence interval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, stdev

from scipy.special import stdtrit

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
    interval: dict[str, float | None]
    """Half the width of the mean's 95 % confidence interval, t s / √n with Student's t, in percent."""


def summaries(results: Iterable[Result | Record]) -> list[Summary]:
    """Results grouped by data set, shift and method, in the order in which these first appear.

    A seed's figure is the mean over its OOD graphs; the deviation is that of seeds.
    """
    groups: dict[tuple[str, str, str], dict[int, list[Result | Record]]] = {}
    for result in results:
        seeds = groups.setdefault((result.dataset, result.shift, result.method), {})
        seeds.setdefault(result.seed, []).append(result)
    return [_summary(key, list(seeds.values())) for key, seeds in groups.items()]


def _summary(key: tuple[str, str, str], seeds: list[list[Result | Record]]) -> Summary:
    metrics, count = _spread(seeds), len(seeds)
    half = float(stdtrit(count - 1, 0.975)) / count**0.5 if count > 1 else None
    interval = {name: None if half is None or std is None else half * std for name, (_, std) in metrics.items()}
    return Summary(*key, count, metrics, interval)


def _spread(seeds: list[list[Result | Record]]) -> dict[str, tuple[float, float | None]]:
    rows = [[(*result.detection, result.accuracy) for result in seed] for seed in seeds]
    columns = zip(*[map(mean, zip(*row, strict=True)) for row in rows], strict=True)
    return {
        name: (100 * mean(values), 100 * stdev(values) if len(values) > 1 else None)
        for name, values in zip((*Detection._fields, "accuracy"), columns, strict=True)
    }
