"""Methods and objectives for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table

from gnnsafe.bench.recipes import Recipe
from gnnsafe.methods import Method, Propagated
from gnnsafe.training import CrossEntropy, Objective

__all__ = ["methods_table"]


def methods_table(
    methods: Mapping[str, type[Method]], objectives: Mapping[str, type[Objective]], recipes: Iterable[Recipe]
) -> Table:
    """A row per method, then per objective: its name, its kind, what it needs, and the first line of its docstring.

    Then the recipes that have a name of their own for an objective and a method together.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("name", "kind", "needs"):
        table.add_column(column, no_wrap=True)
    table.add_column("what it computes")
    for name, method in methods.items():
        table.add_row(name, method.kind, "fitting" if method.needs_fitting() else "–", _first_line(method))
    table.add_row()
    for name, objective in objectives.items():
        table.add_row(name, "objective", "exposure" if objective.needs_exposure else "–", _first_line(objective))
    table.add_row()
    for recipe in recipes:
        if recipe.objective != CrossEntropy() and not isinstance(recipe.method, Propagated):
            needs = "exposure" if recipe.objective.needs_exposure else "–"
            parts = f"{type(recipe.objective).__name__}, scored by {type(recipe.method).__name__}"
            table.add_row(recipe.name, "trained", needs, parts)
    return table


def _first_line(documented: type) -> str:
    return next(iter((documented.__doc__ or "").strip().splitlines()), "")
