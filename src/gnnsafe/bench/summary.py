"""Figures of several seeds and OOD graphs as one: mean, deviation and confidence interval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtrit

from gnnsafe.bench.run import Result
from gnnsafe.bench.store import Record
from gnnsafe.metrics import Detection

__all__ = ["SeedSummary", "summaries"]


@dataclass(frozen=True)
class SeedSummary:
    """One method under one shift over all seeds: mean and standard deviation (none from one seed) in percent."""

    dataset: str
    shift: str
    method: str
    seeds: int
    metrics: dict[str, tuple[float, float | None]]
    values: dict[str, list[float]]
    """What the means are of: a figure per seed."""
    interval: dict[str, float | None]
    """Half the width of the mean's 95 % confidence interval, t s / √n with Student's t, in percent."""


def summaries(results: Iterable[Result | Record]) -> list[SeedSummary]:
    """Results grouped by data set, shift and method, in the order in which these first appear.

    A seed's figure is the mean over its OOD graphs; the deviation is that of seeds.
    """
    groups: dict[tuple[str, str, str], dict[int, list[Result | Record]]] = {}
    for result in results:
        seeds = groups.setdefault((result.dataset, result.shift, result.method), {})
        seeds.setdefault(result.seed, []).append(result)
    return [_summary(key, list(seeds.values())) for key, seeds in groups.items()]


def _summary(key: tuple[str, str, str], seeds: list[list[Result | Record]]) -> SeedSummary:
    rows = [[(*result.detection, result.accuracy) for result in seed] for seed in seeds]
    columns = zip(*[map(fmean, zip(*row, strict=True)) for row in rows], strict=True)
    names = (*Detection._fields, "accuracy")
    values = {name: [100 * value for value in column] for name, column in zip(names, columns, strict=True)}
    spread = {name: (fmean(column), stdev(column) if len(column) > 1 else None) for name, column in values.items()}
    half = float(stdtrit(len(seeds) - 1, 0.975)) / len(seeds) ** 0.5 if len(seeds) > 1 else None
    interval = {name: None if half is None or std is None else half * std for name, (_, std) in spread.items()}
    return SeedSummary(*key, len(seeds), spread, values, interval)
