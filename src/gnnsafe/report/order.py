"""The order of methods, a table per protocol and backbone: regimes side by side, controls beside them."""

from __future__ import annotations

from collections.abc import Sequence

from gnnsafe.bench.store import Record
from gnnsafe.report.document import Section
from gnnsafe.report.grid import Grid, GridEntry
from gnnsafe.report.places import (
    REGIMES,
    Place,
    Setting,
    mean_over,
    order,
    ranked_settings,
    rare_settings,
    settings_of,
)
from gnnsafe.report.ranks import ranking

__all__ = ["order_lines", "order_section"]

SHORT = {"structure": "S", "feature": "F", "label": "L", "planted-feature": "plant F", "planted-structure": "plant S"}
HEADS = {"control-nothing": "nothing\nhappened", "control-half": "other\nhalf"}
WITHIN = "equal\ndegrees"
NONE = "–"


def order_lines(records: Sequence[Record]) -> list[str]:
    """What the table shows, and what its marks mean."""
    places, first = order(records), records[0]
    most = max(place.seeds[1] for place in places)
    lines = [
        f"AUROC in percent, mean of {most} seed{'s' if most > 1 else ''}; {first.protocol} protocol, {first.backbone}, "
        f"{first.epochs} epochs; rank: mean of the ranks in all settings."
    ]
    lines += [f"{regime}: {REGIMES[regime]}; {_listed(found)}" for regime, found in settings_of(records).items()]
    if rare := rare_settings(records):
        lines.append(f"in no mean and no rank, since fewer than half of the methods were run there: {_listed(rare)}")
    if any(place.within is not None for place in places):
        lines.append("equal degrees: of time, among nodes of equal in- and out-degree: what is known beyond degrees")
    if any(place.controls for place in places):
        lines.append(
            "nothing happened, other half: controls without any OOD node, mean over data sets; a fair score has 50"
        )
    if any(place.explained(setting) for place in places for setting in place.auroc):
        lines.append("‡ half or more of what it has beyond 50, a control on that data set has too: an artefact")
    if any(place.exposure for place in places):
        lines.append("* trained with exposure to OOD nodes")
    if (found := ranking(records)) is not None:
        lines.append(found.line)
    if any(not set(ranked_settings(records)) <= set(place.auroc) for place in places):
        lines.append("† not run, or failed, in some setting: no mean there and no rank")
    return lines


def _listed(settings: Sequence[Setting]) -> str:
    shifts: dict[str, list[str]] = {}
    for dataset, shift in settings:
        shifts.setdefault(dataset, []).append(SHORT.get(shift, shift).removeprefix("plant "))
    return ", ".join(f"{dataset} {' '.join(names)}" for dataset, names in shifts.items())


def order_section(records: Sequence[Record]) -> Section:
    """The order with a column per setting, or, where a terminal has no room for that, per regime alone."""
    each = {"\n".join([*dataset.split("-"), SHORT.get(shift, shift)]): [(dataset, shift)]
            for dataset, shift in [*ranked_settings(records), *rare_settings(records)]}  # fmt: skip
    lead, *notes = order_lines(records)
    return Section("The order of methods", [lead], [_grid(records, each)], notes, narrow=[_grid(records, {})])


def _grid(records: Sequence[Record], columns: dict[str, list[Setting]]) -> Grid:
    places, found = order(records), ranking(records)
    counts = {count for place in places for count in place.seeds}
    regimes, within = list(settings_of(records)), any(place.within is not None for place in places)
    controls = list(dict.fromkeys(control for place in places for control in place.controls))
    head = ["#", "method", *regimes, "rank", *(["seeds"] if len(counts) > 1 else []), *([WITHIN] if within else []),
            *(HEADS[control] for control in controls), *columns]  # fmt: skip
    rows = []
    for number, place in enumerate(places, 1):
        missing = not set(ranked_settings(records)) <= set(place.auroc)
        figures = [
            *(place.regimes[regime] for regime in regimes),
            place.rank,
            *([] if len(counts) == 1 else [place.seeds]),
            *([place.within] if within else []),
            *(place.controls[control] for control in controls),
        ]
        alike = found is not None and found.with_the_best(place)
        marks = "*" * place.exposure + "†" * missing + "≈" * alike
        texts = (NONE if place.rank is None else str(number), place.method + marks, *map(_text, figures))
        rows.append(
            [GridEntry(text) for text in (*texts, *(_setting(place, settings) for settings in columns.values()))]
        )
    return Grid("", head, rows, left=2)


def _setting(place: Place, settings: Sequence[Setting]) -> str:
    explained = any(place.explained(setting) for setting in settings)
    return _text(mean_over(place.auroc, settings)) + "‡" * explained


def _text(figure: float | tuple[int, int] | None) -> str:
    if isinstance(figure, tuple):
        return "–".join(map(str, dict.fromkeys(figure)))
    return NONE if figure is None else f"{figure:.1f}"
