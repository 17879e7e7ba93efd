"""Figures beside the alarm, for reading only: repeated daily, none of them has an error rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from gnnsafe.monitoring.summaries import FeatureMoments, FlaggedRegion

__all__ = ["Drift", "TwoSample", "changed_classes", "changed_features", "flagged_regions", "stability", "two_sample"]


@dataclass(frozen=True)
class TwoSample:
    """Kolmogorov and Smirnov's test of one graph's scores beside the calibration nodes'."""

    statistic: float
    p_value: float


def two_sample(scores: Tensor, known: Tensor) -> TwoSample:
    """The largest distance between the two distribution functions, and how rare it is by chance."""
    from scipy.stats import ks_2samp

    found = ks_2samp(scores.double().cpu().numpy(), known.double().cpu().numpy(), method="asymp")
    return TwoSample(float(found.statistic), float(found.pvalue))


def stability(counts: Any, expected: Any = None) -> float:
    """Population stability index Σ (a − b) log(a / b) of the shares a of counts and b expected, even ones by default.

    By custom below 0.1 is stable and above 0.25 has changed. Half a node is added to every bin, so that none is empty.

    >>> round(stability([30, 10]), 4), stability([5, 5, 5])
    (0.2601, 0.0)
    """
    found = np.asarray(counts, dtype=float) + 0.5
    other = np.ones_like(found) if expected is None else np.asarray(expected, dtype=float) + 0.5
    a, b = found / found.sum(), other / other.sum()
    return float(math.fsum((a - b) * np.log(a / b)))


@dataclass(frozen=True)
class Drift:
    """What is now beside what it was at the first."""

    name: str
    before: float
    now: float
    size: float
    """By which changes are compared: the larger, the more."""


def changed_features(
    before: FeatureMoments, now: FeatureMoments, names: Sequence[str] | None, most: int = 10
) -> list[Drift]:
    """The features whose means moved furthest, in standard deviations at the first; one that was constant by its own.

    >>> first = FeatureMoments(np.array([0.0, 5.0], "f4"), np.array([1.0, 0.0], "f4"))
    >>> [one.name for one in changed_features(first, FeatureMoments(np.array([0.5, 5.0], "f4"), first.deviation), None)]
    ['0']
    """
    moved = np.abs(now.mean.astype(float) - before.mean)
    scale = np.where(before.deviation > 0, before.deviation, np.maximum(now.deviation, np.abs(before.mean)))
    size = np.divide(moved, scale, out=np.zeros_like(moved), where=scale > 0)
    order = [int(place) for place in np.argsort(-size, kind="stable")[:most] if size[place] > 0]
    return [
        Drift(
            str(place) if names is None else names[place],
            float(before.mean[place]),
            float(now.mean[place]),
            float(size[place]),
        )
        for place in order
    ]


def changed_classes(before: Mapping[str, int], now: Mapping[str, int], most: int = 10) -> list[Drift]:
    """The predicted classes whose shares moved furthest.

    >>> [(one.name, one.size) for one in changed_classes({"a": 1, "b": 1}, {"a": 1, "b": 3})]
    [('a', 0.25), ('b', 0.25)]
    """
    old, new = (max(sum(counts.values()), 1) for counts in (before, now))
    shares = {name: (before.get(name, 0) / old, now.get(name, 0) / new) for name in sorted({*before, *now})}
    found = [Drift(name, a, b, abs(b - a)) for name, (a, b) in shares.items() if a != b]
    return sorted(found, key=lambda change: -change.size)[:most]


def flagged_regions(entry_regions: Sequence[FlaggedRegion], level: float, most: int = 10) -> list[Drift]:
    """The parts of a graph with most flagged nodes beyond what is expected, in standard deviations of chance."""
    found = [
        Drift(one.centre, level, one.flagged / one.nodes,
               (one.flagged - level * one.nodes) / math.sqrt(level * (1 - level) * one.nodes))
        for one in entry_regions if one.nodes
    ]  # fmt: skip
    return sorted((one for one in found if one.size > 0), key=lambda change: -change.size)[:most]
