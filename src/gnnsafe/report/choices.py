"""How each hyper-parameter of a study was chosen."""

from __future__ import annotations

from collections.abc import Sequence

from gnnsafe.bench.store import Record
from gnnsafe.report.document import Section
from gnnsafe.report.grid import Entry, Grid

__all__ = ["choices_section"]


def choices_section(records: Sequence[Record]) -> Section:
    """A row for each value and reason, with the methods and settings that have it."""
    methods, settings = ({of(record) for record in records} for of in (_method, _setting))
    found: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for record in records:
        for name, text in record.chosen.items():
            who, where = found.setdefault((name, text), ({}, {}))
            who[_method(record)] = where[_setting(record)] = None
    rows = []
    for (name, text), (who, where) in found.items():
        own = "all methods" if set(who) == methods else ", ".join(who)
        place = "all settings" if set(where) == settings else ", ".join(where)
        rows.append([Entry(name), Entry(text), Entry(own), Entry(place)])
    grid = Grid("", ("what", "value, and why", "methods", "settings"), rows, left=4)
    return Section("How hyper-parameters were chosen", grids=[grid])


def _method(record: Record) -> str:
    return record.method


def _setting(record: Record) -> str:
    return f"{record.dataset} {record.shift}"
