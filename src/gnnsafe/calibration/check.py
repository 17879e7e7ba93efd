"""What held-out ID nodes say of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from gnnsafe.calibration.decisions import Calibration, rare
from gnnsafe.calibration.p_values import check_level
from gnnsafe.errors import require

__all__ = ["LEVELS", "CalibrationCheck", "LevelCheck"]

LEVELS = (0.01, 0.05, 0.10)
BINS = 10


@dataclass(frozen=True)
class LevelCheck:
    """One level: how many of the held-out ID nodes were flagged, and what that says."""

    level: float
    flagged: int
    nodes: int
    interval: tuple[float, float]
    """95 % confidence interval of this calibration set's rate (Clopper & Pearson, 1934)."""
    expected: tuple[float, float]
    """Where the observed rate lies 95 times in 100 if the nodes are exchangeable: beta-binomial, both sets' chance."""
    possible: bool = True
    """Whether there are enough calibration nodes, in any class, for a node to be flagged at this level."""

    @property
    def rate(self) -> float:
        """The observed false-alarm rate."""
        return self.flagged / self.nodes

    @property
    def holds(self) -> bool:
        """Whether the observed rate is no higher than chance allows."""
        return self.rate <= self.expected[1]


@dataclass(frozen=True, repr=False)
class CalibrationCheck:
    """What held-out ID nodes say of a calibration: false-alarm rates, and a histogram of p-values (flat is right).

    Args:
        levels: One check for each false-alarm rate.
        calibration_nodes: How many calibration nodes there are.
        nodes: How many held-out ID nodes were looked at.
        histogram: How many of their p-values lie in each tenth of (0, 1].
    """

    levels: tuple[LevelCheck, ...]
    calibration_nodes: int
    nodes: int
    histogram: tuple[int, ...]
    """How many p-values lie in each tenth of (0, 1]."""

    @classmethod
    def of(cls, p: Tensor, calibration: Calibration, levels: Sequence[float] = LEVELS) -> CalibrationCheck:
        """The p-values of held-out ID nodes, examined.

        Args:
            p: The p-values of held-out ID nodes.
            calibration: The calibration that gave them.
            levels: The false-alarm rates to check.

        Returns:
            The observed rates, with what chance allows: print it.

        Raises:
            InputError: A level does not lie between 0 and 1, or there is none.
        """
        require(isinstance(levels, Sequence) and len(levels) > 0, "levels", "be a list of levels", repr(levels))
        for level in levels:
            check_level("levels", level)
        p = p.cpu()
        bins = np.ceil(p.numpy() * BINS - 1e-9).clip(1, BINS).astype(int) - 1  # p = 0.1 is in the first tenth
        checks = tuple(_level_check(p, calibration, level) for level in levels)
        return cls(checks, len(calibration.scores), len(p), tuple(np.bincount(bins, minlength=BINS).tolist()))

    @property
    def holds(self) -> bool:
        """Whether no level was exceeded by more than chance allows."""
        return all(check.holds for check in self.levels)

    def __str__(self) -> str:
        lines = [f"{self.nodes} held-out ID nodes against {self.calibration_nodes} calibration nodes"]
        for check in self.levels:
            if not check.possible:
                lines.append(f"false alarms at {check.level:4.0%}: too few calibration nodes to flag any")
                continue
            low, high = check.interval
            verdict = "" if check.holds else ": more than chance allows"
            lines.append(
                f"false alarms at {check.level:4.0%}: {check.rate:6.2%} (95 % interval {low:.2%} to {high:.2%}; "
                f"chance gives {check.expected[0]:.2%} to {check.expected[1]:.2%}){verdict}"
            )
        tallest = max(self.histogram)
        bars = "".join("▁▂▃▄▅▆▇█"[round(7 * count / tallest)] for count in self.histogram)
        return "\n".join([*lines, f"p-values from 0 to 1: {bars} (flat is right)"])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it.

        Returns:
            Numbers, lists and texts by name.
        """
        levels = [
            {
                "level": check.level, "flagged": check.flagged, "rate": check.rate, "interval": list(check.interval),
                "expected": list(check.expected), "holds": check.holds,
            }
            for check in self.levels
        ]  # fmt: skip
        return {
            "calibration_nodes": self.calibration_nodes, "nodes": self.nodes, "holds": self.holds, "levels": levels,
            "p_value_histogram": list(self.histogram),
        }  # fmt: skip


def _level_check(p: Tensor, calibration: Calibration, level: float) -> LevelCheck:
    from scipy.stats import binomtest

    flagged, nodes = int((p <= level).sum()), len(p)
    interval = binomtest(flagged, nodes).proportion_ci(method="exact")
    count = len(calibration.scores)  # of all classes: their flags together vary about as those of one large set
    possible = rare(int(calibration.counts().max()), level) > 0
    expected = _expected(nodes, count, level) if possible else (0.0, 0.0)
    return LevelCheck(level, flagged, nodes, (float(interval.low), float(interval.high)), expected, possible)


@lru_cache(maxsize=256)  # of a million nodes it takes a second
def _expected(nodes: int, count: int, level: float) -> tuple[float, float]:
    from scipy.stats import betabinom

    few = rare(count, level)
    chance = betabinom(nodes, few, count + 1 - few)
    return float(chance.ppf(0.025)) / nodes, float(chance.ppf(0.975)) / nodes
