"""Places of methods among each other: by regime, and by mean rank over all settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

import numpy as np
from scipy.stats import rankdata

from gnnsafe.bench.store import Record
from gnnsafe.bench.summary import summaries
from gnnsafe.datasets import CONTROLS, SAME_GRAPH

__all__ = [
    "REGIMES",
    "Place",
    "Setting",
    "mean_over",
    "order",
    "ranked_settings",
    "rare_settings",
    "regime_of",
    "settings_of",
]

Setting = tuple[str, str]  # data set, shift

REGIMES = {
    "whole": "OOD nodes are a graph of their own",
    "classes": "classes that no training node has",
    "time": "later nodes",
    "planted": "OOD nodes among ID nodes",
}
"""The kinds of trouble, never averaged into one; controls are none."""
ARTEFACT = 55.0  # AUROC in percent of a control, from which on it explains something
SHARE = 0.5  # of what a figure has beyond 50, that a control must have too to explain it


@dataclass(frozen=True)
class Place:
    """A method's place among all: its AUROC in percent by setting, and by regime where it was run in all of that."""

    method: str
    exposure: bool
    seeds: tuple[int, int]
    """The fewest and the most, over settings."""
    auroc: dict[Setting, float]
    """Controls among them."""
    regimes: dict[str, float | None]
    """Means over the common settings of each regime, by its name."""
    controls: dict[str, float | None]
    """Means over data sets of each control, 50 where a method is fair."""
    within: float | None
    """Mean over settings of time of the AUROC among nodes of equal in- and out-degree."""
    rank: float | None
    """Mean over all common settings but controls, among methods that were run in all of them; 1 is best."""

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        auroc = [
            {"dataset": dataset, "shift": shift, "auroc": value, "explained": self.explained((dataset, shift))}
            for (dataset, shift), value in self.auroc.items()
        ]
        return {**asdict(self), "auroc": auroc}

    def explained(self, setting: Setting) -> bool:
        """Whether a control of the same data set has half or more of what this figure has beyond 50, where it has any.

        A control scores a graph next to the training graph: it says nothing where OOD nodes are in the graph of the ID
        nodes that they are told from.
        """
        dataset, shift = setting
        found = [self.auroc[dataset, control] for control in CONTROLS if (dataset, control) in self.auroc]
        if not found or setting not in self.auroc or regime_of(shift) not in ("whole", "time") or shift == SAME_GRAPH:
            return False
        return max(found) >= ARTEFACT and 0 < SHARE * (self.auroc[setting] - 50) <= max(found) - 50


def regime_of(shift: str) -> str:
    """The regime of a shift; none, "", of a control.

    >>> [regime_of(shift) for shift in ("structure", "label", "time", "planted-feature", "control-half")]
    ['whole', 'classes', 'time', 'planted', '']
    """
    if shift in CONTROLS:
        return ""
    named = {"label": "classes", "time": "time", SAME_GRAPH: "time"}
    return "planted" if shift.startswith("planted-") else named.get(shift, "whole")


def order(records: Sequence[Record]) -> list[Place]:
    """The methods, best mean rank first; then those that were not run in every setting and so have none."""
    table: dict[str, dict[Setting, float]] = {}
    seeds: dict[str, list[int]] = {}
    for summary in summaries(records):
        table.setdefault(summary.method, {})[summary.dataset, summary.shift] = summary.metrics["auroc"][0]
        seeds.setdefault(summary.method, []).append(summary.seeds)
    exposure = {record.method: record.exposure for record in records}
    regimes, controls, within = settings_of(records), _controls(records), _within(records)
    ranks = _mean_ranks(table, ranked_settings(records))
    places = [
        Place(
            name,
            exposure[name],
            (min(seeds[name]), max(seeds[name])),
            auroc,
            {regime: mean_over(auroc, settings) for regime, settings in regimes.items()},
            {control: mean_over(auroc, settings) for control, settings in controls.items()},
            within.get(name),
            ranks.get(name),
        )
        for name, auroc in table.items()
    ]
    return sorted(places, key=lambda place: (place.rank is None, place.rank or 0.0, -_best(place)))


def _best(place: Place) -> float:
    return max((value for value in place.regimes.values() if value is not None), default=0.0)


def _settings(records: Iterable[Record]) -> dict[Setting, bool]:
    """Every setting, and whether it is common: at least half of the methods were run in it, and means are over it.

    A setting of few methods, such as the first try of one that joins, would leave all others without mean and rank.
    """
    methods: dict[Setting, set[str]] = {}
    for record in records:
        methods.setdefault((record.dataset, record.shift), set()).add(record.method)
    every = set().union(*methods.values())
    return {setting: 2 * len(found) >= len(every) for setting, found in methods.items()}


def rare_settings(records: Iterable[Record]) -> list[Setting]:
    """Those but controls that fewer than half of the methods were run in: they count in no mean and no rank."""
    return [setting for setting, common in _settings(records).items() if not common and regime_of(setting[1])]


def settings_of(records: Iterable[Record]) -> dict[str, list[Setting]]:
    """The common settings of each regime that there is, in the order of `REGIMES`."""
    settings = [setting for setting, common in _settings(records).items() if common]
    found = {regime: [setting for setting in settings if regime_of(setting[1]) == regime] for regime in REGIMES}
    return {regime: settings for regime, settings in found.items() if settings}


def _controls(records: Iterable[Record]) -> dict[str, list[Setting]]:
    settings = [setting for setting, common in _settings(records).items() if common]
    found = {control: [setting for setting in settings if setting[1] == control] for control in CONTROLS}
    return {control: settings for control, settings in found.items() if settings}


def ranked_settings(records: Iterable[Record]) -> list[Setting]:
    """All common ones but the controls, regime by regime."""
    return [setting for settings in settings_of(records).values() for setting in settings]


def _within(records: Sequence[Record]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    times = settings_of(records).get("time", [])
    for record in records:
        if (record.dataset, record.shift) in times and record.within_degrees is not None:
            found.setdefault(record.method, []).append(100 * record.within_degrees)
    return {method: mean(values) for method, values in found.items()}


def mean_over(auroc: dict[Setting, float], settings: Sequence[Setting]) -> float | None:
    """The mean over these settings, where there is a figure in every one of them."""
    return mean(auroc[setting] for setting in settings) if settings and set(settings) <= set(auroc) else None


def _mean_ranks(table: dict[str, dict[Setting, float]], settings: Sequence[Setting]) -> dict[str, float]:
    complete = [name for name, auroc in table.items() if mean_over(auroc, settings) is not None]
    if not complete:
        return {}
    figures = np.array([[table[name][setting] for setting in settings] for name in complete])
    return dict(zip(complete, rankdata(-figures, axis=0).mean(axis=1).tolist(), strict=True))
