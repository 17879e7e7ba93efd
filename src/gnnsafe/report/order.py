"""The order of methods: by mean AUROC over all settings, a table per backbone."""

from __future__ import annotations

from collections.abc import Sequence

from gnnsafe.bench.store import Record
from gnnsafe.report.document import Section
from gnnsafe.report.grid import Entry, Grid
from gnnsafe.report.places import Setting, mean_over, order, settings_of
from gnnsafe.report.ranks import ranking

__all__ = ["order_lines", "order_section"]

SHORT = {"structure": "S", "feature": "F", "label": "L", "planted-feature": "plant F", "planted-structure": "plant S"}
NONE = "–"


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
    if (found := ranking(records)) is not None:
        lines.append(found.line)
    if any(len(place.auroc) < len(apart) + len(planted) for place in places):
        lines.append("† not run, or failed, in some setting: no mean and no rank there")
    return lines


def _listed(settings: Sequence[Setting]) -> str:
    shifts: dict[str, list[str]] = {}
    for dataset, shift in settings:
        shifts.setdefault(dataset, []).append(SHORT.get(shift, shift).removeprefix("plant "))
    return ", ".join(f"{dataset} {' '.join(names)}" for dataset, names in shifts.items())


def order_section(records: Sequence[Record]) -> Section:
    """The order with a column per setting, or, where a terminal has no room for that, per data set."""
    apart, planted = settings_of(records)
    each = {"\n".join([*dataset.split("-"), SHORT.get(shift, shift)]): [(dataset, shift)]
            for dataset, shift in [*apart, *planted]}  # fmt: skip
    datasets = {
        dataset.replace("-", "\n"): [setting for setting in apart or planted if setting[0] == dataset]
        for dataset in dict.fromkeys(dataset for dataset, _ in apart or planted)
    }
    lead, *notes = order_lines(records)
    return Section("The order of methods", [lead], [_grid(records, each)], notes, narrow=[_grid(records, datasets)])


def _grid(records: Sequence[Record], columns: dict[str, list[Setting]]) -> Grid:
    places, found = order(records), ranking(records)
    counts = {count for place in places for count in place.seeds}
    apart, planted = settings_of(records)
    head = ["#", "method", *(["mean"] if apart else []), *(["planted"] if planted else []), "rank",
            *(["seeds"] if len(counts) > 1 else []), *columns]  # fmt: skip
    rows = []
    for number, place in enumerate(places, 1):
        missing = len(place.auroc) < len(apart) + len(planted)
        figures = [
            *([place.mean] if apart else []),
            *([place.planted] if planted else []),
            place.rank,
            *([] if len(counts) == 1 else [place.seeds]),
            *(mean_over(place.auroc, settings) for settings in columns.values()),
        ]
        alike = found is not None and found.with_the_best(place)
        marks = "*" * place.exposure + "†" * missing + "≈" * alike
        texts = (NONE if place.rank is None else str(number), place.method + marks, *map(_text, figures))
        rows.append([Entry(text) for text in texts])
    return Grid("", head, rows, left=2)


def _text(figure: float | tuple[int, int] | None) -> str:
    if isinstance(figure, tuple):
        return "–".join(map(str, dict.fromkeys(figure)))
    return NONE if figure is None else f"{figure:.1f}"
