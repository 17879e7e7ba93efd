"""Figures beside the alarm, for reading only: repeated daily, none of them has an error rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

__all__ = ["TwoSample", "stability", "two_sample"]


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
    """Population stability index Σ (a − b) log(a / b) of the shares a of counts and b expected, even ones unless told.

    By custom below 0.1 is stable and above 0.25 has changed. Half a node is added to every bin, so that none is empty.

    >>> round(stability([30, 10]), 4), stability([5, 5, 5])
    (0.2601, 0.0)
    """
    found = np.asarray(counts, dtype=float) + 0.5
    other = np.ones_like(found) if expected is None else np.asarray(expected, dtype=float) + 0.5
    a, b = found / found.sum(), other / other.sum()
    return float(math.fsum((a - b) * np.log(a / b)))
