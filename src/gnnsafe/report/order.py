"""The order of methods: by mean AUROC over all settings, a table per backbone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from rich.console import Console
from rich.table import Table

from gnnsafe.bench.store import Record
from gnnsafe.bench.summary import summaries

__all__ = ["Place", "order", "order_lines", "order_table"]

Setting = tuple[str, str]  # data set, shift

SHORT = {"structure": "S", "feature": "F", "label": "L", "planted-feature": "plant F", "planted-structure": "plant S"}
NONE = "–"
WIDEST = 10_000  # columns; a measure of tables that are wider than the terminal


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
        Place(name, exposure[name], (min(seeds[name]), max(seeds[name])), auroc, _mean(auroc, apart),
              _mean(auroc, planted), ranks.get(name))
        for name, auroc in table.items()
    ]  # fmt: skip
    return sorted(places, key=lambda place: -(_mean(place.auroc, apart or planted) or 0.0))


def settings_of(records: Iterable[Record]) -> tuple[list[Setting], list[Setting]]:
    """The settings with OOD nodes apart, and those with planted ones."""
    settings = list(dict.fromkeys((record.dataset, record.shift) for record in records))
    planted = [setting for setting in settings if setting[1].startswith("planted-")]
    return [setting for setting in settings if setting not in planted], planted


def _mean(auroc: dict[Setting, float], settings: Sequence[Setting]) -> float | None:
    return mean(auroc[setting] for setting in settings) if settings and set(settings) <= set(auroc) else None


def _mean_ranks(table: dict[str, dict[Setting, float]], settings: Sequence[Setting]) -> dict[str, float]:
    complete = [name for name, auroc in table.items() if _mean(auroc, settings) is not None]
    if not complete:
        return {}
    figures = np.array([[table[name][setting] for setting in settings] for name in complete])
    better = (figures > figures[:, None]).sum(axis=1)
    equal = (figures == figures[:, None]).sum(axis=1)  # itself among them; ties share the mean of their ranks
    return dict(zip(complete, (better + (1 + equal) / 2).mean(axis=1).tolist(), strict=True))


def order_lines(records: Sequence[Record]) -> list[str]:
    """What the table shows, and what its marks mean."""
    apart, planted = settings_of(records)
    places, first = order(records), records[0]
    most = max(place.seeds[1] for place in places)
    lines = [
        f"AUROC in percent, mean of {most} seed{'s' if most > 1 else ''}; {first.protocol} protocol, {first.backbone}, "
        f"{first.epochs} epochs."
    ]
    if apart:
        lines.append(f"mean: over {_listed(apart)}; rank: mean of the ranks in these")
    if planted:
        lines.append(f"planted: over {_listed(planted)}, OOD nodes among ID nodes")
    if any(place.exposure for place in places):
        lines.append("* trained with exposure to OOD nodes")
    if any(len(place.auroc) < len(apart) + len(planted) for place in places):
        lines.append("† not run, or failed, in some setting: no mean and no rank there")
    return lines


def _listed(settings: Sequence[Setting]) -> str:
    shifts: dict[str, list[str]] = {}
    for dataset, shift in settings:
        shifts.setdefault(dataset, []).append(SHORT.get(shift, shift).removeprefix("plant "))
    return ", ".join(f"{dataset} {' '.join(names)}" for dataset, names in shifts.items())


def order_table(records: Sequence[Record], console: Console) -> Table:
    """The order with a column per setting, or, where the terminal has no room for that, per data set."""
    apart, planted = settings_of(records)
    each = {"\n".join([*dataset.split("-"), SHORT.get(shift, shift)]): [(dataset, shift)]
            for dataset, shift in [*apart, *planted]}  # fmt: skip
    wide = _table(records, each)
    if console.measure(wide, options=console.options.update(width=WIDEST)).maximum <= console.width:
        return wide
    datasets = dict.fromkeys(dataset for dataset, _ in apart or planted)
    return _table(records, {
        dataset.replace("-", "\n"): [setting for setting in apart or planted if setting[0] == dataset]
        for dataset in datasets
    })  # fmt: skip


def _table(records: Sequence[Record], columns: dict[str, list[Setting]]) -> Table:
    places = order(records)
    counts = {count for place in places for count in place.seeds}
    apart, planted = settings_of(records)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", caption_justify="left", caption_style="")
    heads = ["#", "method", *(["mean"] if apart else []), *(["planted"] if planted else []), "rank",
             *(["seeds"] if len(counts) > 1 else []), *columns]  # fmt: skip
    for head in heads:
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=True)
    for number, place in enumerate(places, 1):
        missing = len(place.auroc) < len(apart) + len(planted)
        figures = [
            *([place.mean] if apart else []),
            *([place.planted] if planted else []),
            place.rank,
            *([] if len(counts) == 1 else [place.seeds]),
            *(_mean(place.auroc, settings) for settings in columns.values()),
        ]
        marks = "*" * place.exposure + "†" * missing
        table.add_row(NONE if place.rank is None else str(number), place.method + marks, *map(_text, figures))
    return table


def _text(figure: float | tuple[int, int] | None) -> str:
    if isinstance(figure, tuple):
        return "–".join(map(str, dict.fromkeys(figure)))
    return NONE if figure is None else f"{figure:.1f}"
