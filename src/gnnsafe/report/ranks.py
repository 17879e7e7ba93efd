"""Which methods the settings tell apart: mean ranks, Friedman's test and Nemenyi's critical difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import friedmanchisquare, studentized_range

from gnnsafe.bench.store import Record
from gnnsafe.report.places import Place, order, ranked_settings

__all__ = ["Ranking", "ranking"]


@dataclass(frozen=True)
class Ranking:
    """Methods run in every setting, best first; two of them differ where their ranks do by `critical` or more.

    CD = q √(k(k+1) / 6N), q the studentized range's 95 % point over √2  (Nemenyi, 1963; Demšar, 2006). It takes
    settings to be independent; shifts of one graph are not, so the true difference is larger.
    """

    places: list[Place]
    settings: int
    critical: float
    p_value: float

    @property
    def best(self) -> float:
        """The lowest mean rank."""
        return min(place.rank for place in self.places if place.rank is not None)

    def with_the_best(self, place: Place) -> bool:
        """Whether the settings do not tell it from the best."""
        return place.rank is not None and place.rank - self.best < self.critical

    @property
    def line(self) -> str:
        """What the test says."""
        return (
            f"≈ not told from the best rank: they differ by less than {self.critical:.1f} (Nemenyi, 5 %; Friedman's "
            f"test p = {self.p_value:.1g}; {self.settings} settings as if independent, though some share a graph)"
        )


def ranking(records: Sequence[Record]) -> Ranking | None:
    """Of at least three methods in two settings, or none."""
    settings = ranked_settings(records)
    places = [place for place in order(records) if place.rank is not None]
    if len(places) < 3 or len(settings) < 2:
        return None
    figures = np.array([[place.auroc[setting] for setting in settings] for place in places])
    count = len(places)
    quantile = studentized_range.ppf(0.95, count, np.inf) / 2**0.5
    critical = quantile * (count * (count + 1) / (6 * len(settings))) ** 0.5
    alike = len({place.rank for place in places}) == 1  # no test where nothing differs
    p_value = 1.0 if alike else float(friedmanchisquare(*figures).pvalue)
    return Ranking(places, len(settings), float(critical), p_value)
