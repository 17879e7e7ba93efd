"""Methods and objectives, and the recipes that are named for both together: as figures, and for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from gnnsafe.bench.recipes import Recipe
from gnnsafe.methods import Method, Propagated
from gnnsafe.training import CrossEntropy, Objective

__all__ = ["method_figures", "methods_table"]


def method_figures(
    methods: Mapping[str, type[Method]], objectives: Mapping[str, type[Objective]], recipes: Iterable[Recipe]
) -> dict[str, list[dict[str, str | None]]]:
    """Of each its name, its kind, what it needs, and what it computes: the first line of its docstring."""
    named = [
        recipe for recipe in recipes if recipe.objective != CrossEntropy() and not isinstance(recipe.method, Propagated)
    ]
    return {
        "methods": [
            _row(name, method.kind, "fitting" if method.needs_fitting() else None, _first_line(method))
            for name, method in methods.items()
        ],
        "objectives": [
            _row(name, "objective", "exposure" if objective.needs_exposure else None, _first_line(objective))
            for name, objective in objectives.items()
        ],
        "recipes": [
            _row(recipe.name, "trained", "exposure" if recipe.objective.needs_exposure else None,
                 f"{type(recipe.objective).__name__}, scored by {type(recipe.method).__name__}")
            for recipe in named
        ],
    }  # fmt: skip


def methods_table(figures: Mapping[str, Sequence[Mapping[str, str | None]]]) -> Table:
    """A row per method, then per objective, then per recipe."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("name", "kind", "needs"):
        table.add_column(column, no_wrap=True)
    table.add_column("what it computes")
    for number, rows in enumerate(figures.values()):
        if number:
            table.add_row()
        for row in rows:
            table.add_row(*(text or "–" for text in row.values()))
    return table


def _row(name: str, kind: str, needs: str | None, what: str) -> dict[str, str | None]:
    return {"name": name, "kind": kind, "needs": needs, "what": what}


def _first_line(documented: type) -> str:
    return next(iter((documented.__doc__ or "").strip().splitlines()), "")
