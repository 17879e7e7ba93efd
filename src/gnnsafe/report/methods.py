"""Methods and objectives for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from gnnsafe.methods import Method
from gnnsafe.training import Objective

__all__ = ["methods_table"]


def methods_table(methods: Mapping[str, type[Method]], objectives: Mapping[str, type[Objective]]) -> Table:
    """A row per method, then per objective: its name, its kind, what it needs, and the first line of its docstring."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("name", "kind", "needs"):
        table.add_column(column, no_wrap=True)
    table.add_column("what it computes")
    for name, method in methods.items():
        table.add_row(name, method.kind, "fitting" if method.needs_fitting() else "–", _first_line(method))
    table.add_row()
    for name, objective in objectives.items():
        table.add_row(name, "objective", "exposure" if objective.needs_exposure else "–", _first_line(objective))
    return table


def _first_line(documented: type) -> str:
    return (documented.__doc__ or "").splitlines()[0]
