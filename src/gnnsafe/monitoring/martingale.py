"""A betting e-process on p-values: it grows only where they stop being uniform, and may be looked at at any time.

Each bet is a density f on (0, 1), so that E f(p) = 1 for a uniform p; who stakes on it owns stake · Π f(p_t). A gambler
starts with 1 and, as each run begins, moves a share 1 / (k + 1) of what is still held in cash to all bets alike, k the
number of the run. What he owns, cash and bets, is a non-negative martingale if each p-value is uniform given those
before it; so by Ville's inequality (1939)

    P(M_t ≥ 1 / α at any t, ever) ≤ α.

Cash is what makes a late change visible: a bet that was open during a long calm has lost all, but when run k began a
share 1 / (k (k + 1)) of the wealth was staked. A change at run k therefore needs only log(k (k + 1)) more evidence than
one at the first. Bets are memoryless, so what was staked on one at different times is one number: the state has one for
each bet, however long the stream (a mixture over starting points at the price of a single one).

Bets: ε p^(ε−1) and ε (1−p)^(ε−1) on many small, or large, p-values (Vovk & Wang, 2021), and 1 + c cos(jπp), j = 1, 2,
on milder departures of any shape: lower, higher, more spread, less spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BETS", "Martingale", "log_bets"]

Floats = NDArray[np.float64]
SMALL = (0.15, 0.3, 0.5, 0.7, 0.85)
LARGE = (0.5, 0.85)
WAVES = ((1, 0.3), (1, 0.6), (1, 0.95), (1, -0.3), (1, -0.6), (1, -0.95), (2, 0.3), (2, 0.8), (2, -0.3), (2, -0.8))
BETS = len(SMALL) + len(LARGE) + len(WAVES)
EDGE = 1e-15  # no p-value is 0 or 1, at which a bet would win or lose without bound


def log_bets(p: Floats) -> Floats:
    """log f(p) of each bet, [p-values, bets].

    >>> np.exp(log_bets(np.array([0.25])))[0, [2, 5]].round(4).tolist()
    [1.0, 0.5774]
    """
    inside = np.clip(p, EDGE, 1 - EDGE)[:, None]
    small, large = np.array(SMALL), np.array(LARGE)
    wave, height = np.array(WAVES).T
    return np.concatenate(
        [
            np.log(small) + (small - 1) * np.log(inside),
            np.log(large) + (large - 1) * np.log1p(-inside),
            np.log1p(height * np.cos(wave * math.pi * inside)),
        ],
        axis=1,
    )


def _calm() -> tuple[float, ...]:
    return (-math.inf,) * BETS


@dataclass(frozen=True)
class Martingale:
    """What the gambler owns, in logarithms; `after` goes on with the p-values of another run.

    >>> calm = Martingale().after((np.arange(100) * 37 % 100 + 0.5) / 100)
    >>> odd = calm.after(np.full(30, 0.01))
    >>> bool(calm.log_peak < math.log(20) < odd.log_peak)
    True
    """

    log_cash: float = 0.0
    log_stakes: tuple[float, ...] = field(default_factory=_calm)
    """What each bet has grown to."""
    runs: int = 0
    nodes: int = 0
    log_peak: float = 0.0
    """The highest value ever, after any node: what Ville's inequality is about."""

    @property
    def log_value(self) -> float:
        """log M now."""
        return float(np.logaddexp.reduce([self.log_cash, *self.log_stakes]))

    def after(self, p: Floats, *, block: bool = False) -> Martingale:
        """The martingale after one more run with these p-values, in their order; one without any changes nothing.

        As a `block` they count as one, by the mean of f(p) over them: its expectation is 1 however they depend on each
        other, as long as each is uniform given the runs before.
        """
        if len(p) == 0:
            return self
        runs = self.runs + 1
        moved = self.log_cash - math.log(runs + 1)  # of the cash, to all bets
        cash = self.log_cash + math.log(runs / (runs + 1))
        staked = np.logaddexp(np.array(self.log_stakes), moved - math.log(BETS))
        logs = log_bets(p)
        path = staked + (
            np.logaddexp.reduce(logs, axis=0)[None] - math.log(len(p)) if block else np.cumsum(logs, axis=0)
        )
        values = np.logaddexp(np.logaddexp.reduce(path, axis=1), cash)
        peak = max(self.log_peak, float(values.max()))
        return replace(self, log_cash=cash, log_stakes=tuple(path[-1].tolist()), runs=runs,
                       nodes=self.nodes + len(p), log_peak=peak)  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The state, as JSON has it; a bet on which nothing was staked yet is null."""
        stakes = [None if stake == -math.inf else stake for stake in self.log_stakes]
        return {"log_cash": self.log_cash, "log_stakes": stakes, "runs": self.runs, "nodes": self.nodes,
                "log_peak": self.log_peak}  # fmt: skip

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Martingale:
        """The same again."""
        stakes = tuple(-math.inf if stake is None else stake for stake in state["log_stakes"])
        return cls(**{**state, "log_stakes": stakes})
