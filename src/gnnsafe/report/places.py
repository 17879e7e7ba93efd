"""Places of methods among each other: by mean AUROC over all settings, and by mean rank in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from scipy.stats import rankdata

from gnnsafe.bench.store import Record
from gnnsafe.bench.summary import summaries

__all__ = ["Place", "Setting", "mean_over", "order", "settings_of"]

Setting = tuple[str, str]  # data set, shift


@dataclass(frozen=True)
class Place:
    """A method's place among all: its AUROC in percent by setting, and the means, where it was run in every setting."""

    method: str
    exposure: bool
    seeds: tuple[int, int]
    """The fewest and the most, over settings."""
    auroc: dict[Setting, float]
    mean: float | None
    """Over settings in which the OOD nodes are a graph or classes of their own."""
    planted: float | None
    """Over settings in which they are planted among ID nodes."""
    rank: float | None
    """Mean over the settings of the mean, among methods that have one; 1 is best."""


def order(records: Sequence[Record]) -> list[Place]:
    """The methods, best mean first; then those that were not run in every setting and so have none."""
    table: dict[str, dict[Setting, float]] = {}
    seeds: dict[str, list[int]] = {}
    for summary in summaries(records):
        table.setdefault(summary.method, {})[summary.dataset, summary.shift] = summary.metrics["auroc"][0]
        seeds.setdefault(summary.method, []).append(summary.seeds)
    exposure = {record.method: record.exposure for record in records}
    apart, planted = settings_of(records)
    ranks = _mean_ranks(table, apart or planted)
    places = [
        Place(name, exposure[name], (min(seeds[name]), max(seeds[name])), auroc, mean_over(auroc, apart),
              mean_over(auroc, planted), ranks.get(name))
        for name, auroc in table.items()
    ]  # fmt: skip
    return sorted(places, key=lambda place: -(mean_over(place.auroc, apart or planted) or 0.0))


def settings_of(records: Iterable[Record]) -> tuple[list[Setting], list[Setting]]:
    """The settings with OOD nodes apart, and those with planted ones."""
    settings = list(dict.fromkeys((record.dataset, record.shift) for record in records))
    planted = [setting for setting in settings if setting[1].startswith("planted-")]
    return [setting for setting in settings if setting not in planted], planted


def mean_over(auroc: dict[Setting, float], settings: Sequence[Setting]) -> float | None:
    """The mean over these settings, where there is a figure in every one of them."""
    return mean(auroc[setting] for setting in settings) if settings and set(settings) <= set(auroc) else None


def _mean_ranks(table: dict[str, dict[Setting, float]], settings: Sequence[Setting]) -> dict[str, float]:
    complete = [name for name, auroc in table.items() if mean_over(auroc, settings) is not None]
    if not complete:
        return {}
    figures = np.array([[table[name][setting] for setting in settings] for name in complete])
    return dict(zip(complete, rankdata(-figures, axis=0).mean(axis=1).tolist(), strict=True))
