"""How each hyper-parameter of a study was chosen."""

from __future__ import annotations

from collections.abc import Sequence

from gnnsafe.bench.store import Record
from gnnsafe.report.document import Section
from gnnsafe.report.grid import Grid, GridEntry

__all__ = ["choices_section"]


def choices_section(records: Sequence[Record]) -> Section:
    """A row for each value and reason, with the methods that have it in the same settings, and these."""
    settings = dict.fromkeys(map(_setting, records))
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for record in records:
        for name, text in record.chosen.items():
            found.setdefault((name, text, record.method), {})[_setting(record)] = None
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (name, text, method), own in found.items():
        alike.setdefault((name, text, tuple(setting for setting in settings if setting in own)), []).append(method)
    methods = {record.method for record in records}
    rows = []
    for (name, text, where), who in alike.items():
        all_or = "all methods" if set(who) == methods else "; ".join(who)
        place = "all settings" if len(where) == len(settings) else "; ".join(where)
        rows.append([GridEntry(name), GridEntry(text), GridEntry(all_or), GridEntry(place)])
    grid = Grid("", ("what", "value, and why", "methods", "settings"), rows, left=4)
    return Section("How hyper-parameters were chosen", grids=[grid])


def _setting(record: Record) -> str:
    return f"{record.dataset} {record.shift}" + ("" if record.protocol == "paper" else f" ({record.protocol})")
