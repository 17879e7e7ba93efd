"""The alarm of a stream: a martingale for each score that is watched, and one error rate for all of them.

Several scores may be watched: a method that weighs evidence (`TwoScale`) is watched as a whole and by each piece, since
by no means every change moves the sum. Each has its own ranks and its own martingale M_c, and a weight: a half for the
whole, the other half shared by the pieces. The alarm is raised as soon as

    max_c weight_c · M_c ≥ 1 / α,

which by Ville's inequality for each and the sum of their error rates happens with a probability of at most α. (Their
mean would be a little higher and is no martingale: p-values of one score are uniform given the past of that score, not
given the past of all of them together, from which one may learn where the first one's nodes lie.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnsafe.errors import InputError, require, require_seed
from gnnsafe.monitoring.martingale import Martingale
from gnnsafe.monitoring.ranks import Ranks

__all__ = ["Alarm", "Channel"]

Floats = NDArray[np.float64]
WHOLE = 0.5  # the weight of the first score, where there are several


@dataclass(frozen=True)
class Channel:
    """One score that is watched."""

    name: str
    column: int
    """Its place among the scores that are watched."""
    weight: float
    ranks: Ranks
    martingale: Martingale = field(default_factory=Martingale)

    @property
    def log_value(self) -> float:
        """log(weight · M) now."""
        return math.log(self.weight) + self.martingale.log_value

    @property
    def log_peak(self) -> float:
        """log(weight · M) at its highest."""
        return math.log(self.weight) + self.martingale.log_peak

    def after(self, scores: Floats, rng: np.random.Generator, *, block: bool = False) -> Channel:
        """Once more nodes were counted; those about which it says nothing, NaN, are not."""
        p, ranks = self.ranks.after(scores[~np.isnan(scores)], rng, block=block)
        return Channel(self.name, self.column, self.weight, ranks, self.martingale.after(p, block=block))


@dataclass(frozen=True)
class Alarm:
    """The state of a stream: `Alarm.watching(names, calibration)`, then `after(scores)` for every run.

    Random numbers come from `seed` and the number of the run: the same stream gives the same values.
    """

    channels: tuple[Channel, ...]
    seed: int = 0
    runs: int = 0

    @classmethod
    def watching(cls, names: Sequence[str], calibration: Floats, *, seed: int = 0) -> Alarm:
        """Before any node came.

        Args:
            names: What each score that is watched is called.
            calibration: Those scores of held-out ID nodes, [nodes, scores]; NaN where one says nothing.
            seed: Of the random order of nodes and of equal scores.
        """
        require_seed(seed)
        known = np.asarray(calibration, dtype=np.float64)
        require(
            known.ndim == 2 and known.shape[1] == len(names), "calibration", f"have {len(names)} columns", known.shape
        )
        telling = [number for number in range(len(names)) if not np.isnan(known[:, number]).all()]
        require(bool(telling), "calibration", "be a number for some node", "NaN for all")
        several = len(telling) - 1
        weights = [1.0] if not several else [WHOLE] + [(1 - WHOLE) / several] * several
        rng = np.random.default_rng([seed, 0])
        channels = [
            Channel(names[number], number, weight, Ranks.among(known[:, number], rng))
            for number, weight in zip(telling, weights, strict=True)
        ]
        return cls(tuple(channels), seed)

    def after(self, scores: Floats, *, block: bool = False) -> Alarm:
        """Once the nodes of another run were counted, in a random order.

        Args:
            scores: What is watched, [nodes, scores], of nodes that were never counted before.
            block: Count them as one, for runs whose nodes are neighbours or otherwise alike.
        """
        run = self.runs + 1
        rng = np.random.default_rng([self.seed, run])
        rows = np.asarray(scores, dtype=np.float64)[rng.permutation(len(scores))]
        channels = tuple(channel.after(rows[:, channel.column], rng, block=block) for channel in self.channels)
        return Alarm(channels, self.seed, run)

    @property
    def loudest(self) -> Channel:
        """The score whose weighed martingale is or was the highest."""
        return max(self.channels, key=lambda channel: channel.log_peak)

    @property
    def log_value(self) -> float:
        """log max_c weight_c · M_c now."""
        return max(channel.log_value for channel in self.channels)

    @property
    def log_peak(self) -> float:
        """The highest that it ever was: the alarm was raised where this is at least log(1 / α)."""
        return max(channel.log_peak for channel in self.channels)

    @property
    def nodes(self) -> int:
        """How many nodes were counted."""
        return max(channel.martingale.nodes for channel in self.channels)

    def raised(self, alpha: float) -> bool:
        """Whether it was ever raised at an error rate: of calm streams at most a share `alpha` ever is."""
        require(0 < alpha < 1, "alpha", "lie in (0, 1)", alpha)
        return self.log_peak >= -math.log(alpha)

    def to_dict(self) -> dict[str, Any]:
        """The state, as JSON has it."""
        channels = [
            {
                "name": one.name, "column": one.column, "weight": one.weight, "ranks": one.ranks.to_dict(),
                "martingale": one.martingale.to_dict(),
            }
            for one in self.channels
        ]  # fmt: skip
        return {"channels": channels, "seed": self.seed, "runs": self.runs}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Alarm:
        """The same again."""
        try:
            channels = tuple(
                Channel(
                    **{
                        **one,
                        "ranks": Ranks.from_dict(one["ranks"]),
                        "martingale": Martingale.from_dict(one["martingale"]),
                    }
                )
                for one in state["channels"]
            )
            return cls(channels, state["seed"], state["runs"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"'state' must be the state of an alarm (got one without {error})") from error
