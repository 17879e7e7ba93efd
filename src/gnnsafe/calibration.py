"""Decisions with a stated error rate: conformal p-values among held-out ID nodes, false alarms and false discoveries.

The guarantee, p ≤ α for at most a share α of ID nodes, holds where the calibration nodes and the ID nodes to come are
exchangeable: drawn at random from one pool, and scored by a model and a method that have learnt from neither. It is a
guarantee on average over calibration sets; with one set of n nodes the rate is one draw from Beta(k, n+1−k), where
k = ⌊α(n+1)⌋, about α ± √(α(1−α)/n). It says nothing about OOD nodes. An ID node whose neighbours have shifted is scored
with them, by the model and by propagation, and is no longer exchangeable with one whose neighbours have not: it raises
more false alarms than stated.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnsafe.checks import check_scores
from gnnsafe.errors import CalibrationWarning, is_number, require, require_seed

__all__ = ["Calibration", "CalibrationCheck", "LevelCheck", "conformal_p_values", "false_alarms", "false_discoveries"]

LEVELS = (0.01, 0.05, 0.10)
BINS = 10


def check_level(name: str, level: object) -> None:
    """A level is a share between none and all."""
    require(is_number(level) and 0 < level < 1, name, "lie in (0, 1)", level)  # type: ignore[operator]


def conformal_p_values(scores: Tensor, calibration: Tensor, *, seed: int | None = None) -> Tensor:
    """p = (1 + #{calibration ≥ s}) / (n + 1) of each score, float64  (Vovk et al., 2005).

    With a `seed` ties are broken at random, p = (#{calibration > s} + U (1 + #{calibration = s})) / (n + 1) with
    U ~ U(0, 1): then p of an exchangeable node is uniform, not only at least so large. Without calibration nodes: 1.

    >>> conformal_p_values(torch.tensor([0.0, 2.0, 9.0]), torch.tensor([1.0, 2.0, 3.0])).tolist()
    [1.0, 0.75, 0.25]
    """
    check_scores(scores)
    ordered, scores, count = calibration.sort().values, scores.contiguous(), len(calibration)
    at_least = count - torch.searchsorted(ordered, scores)
    if seed is None:
        return (1 + at_least).double() / (count + 1)
    require_seed(seed)
    above = count - torch.searchsorted(ordered, scores, right=True)
    chance = torch.from_numpy(np.random.default_rng(seed).random(len(scores)))
    return (above + chance * (1 + at_least - above)) / (count + 1)


def false_alarms(p: Tensor, level: float) -> Tensor:
    """Flags p ≤ α: of exchangeable ID nodes at most a share α is flagged on average.

    >>> false_alarms(torch.tensor([0.04, 0.05, 0.06], dtype=torch.float64), 0.05).tolist()
    [True, True, False]
    """
    check_level("false_alarm", level)
    return p <= level


def false_discoveries(p: Tensor, level: float) -> Tensor:
    """Flags such that of those flagged at most a share is expected to be ID  (Benjamini & Hochberg, 1995).

    p-values that share a calibration set depend on each other, in a way that the procedure allows (Bates et al., 2023).

    >>> false_discoveries(torch.tensor([0.01, 0.02, 0.9, 0.5]).double(), 0.05).tolist()
    [True, True, False, False]
    """
    from scipy.stats import false_discovery_control  # half a second to import: only where a decision asks for it

    check_level("fdr", level)
    return torch.from_numpy(false_discovery_control(p.numpy()) <= level)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of held-out ID nodes; with their predicted `classes`, decisions are made class by class.

    By class (Mondrian; Vovk et al., 2005) a node is compared with the calibration nodes of its own predicted class, and
    the false-alarm rate holds in each of the `num_classes`, not only over all of them.
    """

    scores: Tensor
    classes: Tensor | None = None
    num_classes: int = 0

    def __post_init__(self) -> None:
        check_scores(self.scores)
        require(len(self.scores) > 0, "mask", "hold at least one node", "an empty mask")

    def p_values(self, scores: Tensor, classes: Tensor | None = None, *, seed: int | None = None) -> Tensor:
        """The conformal p-value of each score, among the calibration nodes of its class where these count."""
        if self.classes is None:
            return conformal_p_values(scores, self.scores, seed=seed)
        assert classes is not None
        p = torch.ones(len(scores), dtype=torch.float64)
        for label in range(self.num_classes):
            members = classes == label
            own = None if seed is None else seed + label  # else classes would share their draws
            p[members] = conformal_p_values(scores[members], self.scores[self.classes == label], seed=own)
        return p

    def counts(self) -> Tensor:
        """How many calibration nodes there are, in each class or in all."""
        if self.classes is None:
            return torch.tensor([len(self.scores)])
        return torch.bincount(self.classes, minlength=self.num_classes)

    def thresholds(self, false_alarm: float) -> Tensor:
        """A node is flagged where its score lies above this: one number, or one for each class; ∞ where none can be."""
        check_level("false_alarm", false_alarm)
        if self.classes is None:
            return _threshold(self.scores, false_alarm)[None]
        groups = [self.scores[self.classes == label] for label in range(self.num_classes)]
        return torch.stack([_threshold(group, false_alarm) for group in groups])

    def decisions(self, p: Tensor, *, false_alarm: float | None = None, fdr: float | None = None) -> Tensor:
        """Flags of p-values at one of the two levels, with a warning where the calibration nodes are too few for it."""
        given = [name for name, level in (("false_alarm", false_alarm), ("fdr", fdr)) if level is not None]
        require(len(given) == 1, "false_alarm", "be given, or fdr, but not both", " and ".join(given) or "neither")
        if false_alarm is not None:
            flags = false_alarms(p, false_alarm)
            self._warn_of_alarms(false_alarm)
            return flags
        assert fdr is not None
        flags = false_discoveries(p, fdr)
        self._warn_of_discoveries(p, flags, fdr)
        return flags

    def _warn_of_alarms(self, level: float) -> None:
        needed, counts = nodes_needed(level), self.counts()
        if (counts >= needed).all():
            return
        have = f"{len(self.scores)} calibration nodes are"
        if self.classes is not None:
            few = [f"{label} ({count})" for label, count in enumerate(counts.tolist()) if count < needed]
            have = f"the calibration nodes of class {', '.join(few)} are"
        _warn(f"{have} too few to flag any node at false_alarm={level:g}: at least {needed} are needed")

    def _warn_of_discoveries(self, p: Tensor, flags: Tensor, level: float) -> None:
        """Nodes beyond all calibration nodes may still not be rare enough, since each is weighed among all nodes."""
        beyond = int((p <= 1 / (int(self.counts().max()) + 1)).sum())
        if beyond and not flags.any():
            _warn(
                f"{len(self.scores)} calibration nodes are too few to flag any of {len(p)} nodes at fdr={level:g}, "
                f"though {beyond} lie beyond all: at least {nodes_needed(level * beyond / len(p))} are needed for those"
            )


def nodes_needed(level: float) -> int:
    """The least n with 1 / (n + 1) ≤ α: with fewer calibration nodes no p-value is that small.

    >>> nodes_needed(0.05), nodes_needed(0.01)
    (19, 99)
    """
    needed = max(0, math.floor(1 / level) - 2)  # rounding may be off by one either way
    while 1 / (needed + 1) > level:
        needed += 1
    return needed


def _warn(message: str) -> None:
    warnings.warn(message, CalibrationWarning, stacklevel=5)  # where predict was called


def _rare(count: int, level: float) -> int:
    """⌊α(n+1)⌋: how many of n + 1 equally likely p-values are at most α."""
    return int(np.searchsorted(np.arange(1, count + 2) / (count + 1), level, side="right"))


def _threshold(calibration: Tensor, level: float) -> Tensor:
    """The k-th largest score, k ≤ n the number of p-values that are rare enough; ∞ where none is."""
    ordered = torch.cat([calibration.new_tensor([math.inf]), calibration.sort(descending=True).values])
    return ordered[_rare(len(calibration), level)]


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
    """What held-out ID nodes say of a calibration: false-alarm rates, and a histogram of p-values (flat is right)."""

    levels: tuple[LevelCheck, ...]
    calibration_nodes: int
    nodes: int
    histogram: tuple[int, ...]
    """How many p-values lie in each tenth of (0, 1]."""

    @classmethod
    def of(cls, p: Tensor, calibration: Calibration, levels: Sequence[float] = LEVELS) -> CalibrationCheck:
        """The p-values of held-out ID nodes, examined."""
        for level in levels:
            check_level("levels", level)
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
        """All of it, as JSON has it."""
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
    return LevelCheck(
        level, flagged, nodes, (float(interval.low), float(interval.high)), _expected(nodes, count, level)
    )


def _expected(nodes: int, count: int, level: float) -> tuple[float, float]:
    from scipy.stats import betabinom

    rare = _rare(count, level)
    if rare == 0:
        return 0.0, 0.0
    chance = betabinom(nodes, rare, count + 1 - rare)
    return float(chance.ppf(0.025)) / nodes, float(chance.ppf(0.975)) / nodes
