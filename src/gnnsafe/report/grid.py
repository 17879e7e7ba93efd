"""A table of texts with marks, once: for the terminal, as Markdown and LaTeX; a page has a template for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.table import Table
from rich.text import Text

from gnnsafe.display import shown, shown_lines

__all__ = [
    "Grid",
    "GridEntry",
    "latex_grid",
    "latex_text",
    "markdown_grid",
    "markdown_text",
    "terminal_grid",
]

Mark = Literal["", "best", "second", "quiet"]


@dataclass(frozen=True)
class GridEntry:
    """A text, how it is marked, and the number of its footnote."""

    text: str
    mark: Mark = ""
    notes: str = ""


@dataclass(frozen=True)
class Grid:
    """Rows of entries under a head; the first `left` columns are words, the others are figures."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[GridEntry]]
    left: int = 1
    breaks: Sequence[int] = field(default=())
    """Rows before which there is a line."""


RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def terminal_grid(grid: Grid) -> Table:
    """Best is bold, second best underlined."""
    styles = {"": "", "best": "bold", "second": "underline", "quiet": "dim"}
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", title_justify="left", title_style="bold")
    table.title = Text(shown(grid.title)) if grid.title else None
    for number, head in enumerate(grid.head):
        table.add_column(Text(shown_lines(head)), justify="left" if number < grid.left else "right", no_wrap=True)
    for number, row in enumerate(grid.rows):
        if number in grid.breaks:
            table.add_row()
        entries = [Text(shown(entry.text), styles[entry.mark]).append(entry.notes.translate(RAISED)) for entry in row]
        table.add_row(*entries)
    return table


def markdown_grid(grid: Grid) -> str:
    """Best is bold, second best italic."""
    marks = {"": "{}", "best": "**{}**", "second": "*{}*", "quiet": "{}"}
    lines = [f"**{markdown_text(grid.title)}**\n"] * bool(grid.title)
    lines.append(_joined(grid.head, lambda head: markdown_text(head.replace("\n", " ")) or " "))
    lines.append(_joined(range(len(grid.head)), lambda number: ":---" if number < grid.left else "---:"))
    for row in grid.rows:
        lines.append(_joined(row, lambda e: _marked(marks, e, "<sup>{}</sup>", markdown_text)))
    return "\n".join(lines) + "\n"


def markdown_text(text: str) -> str:
    """A plain text for Markdown: nothing in it is a tag, a link, code or emphasis, or ends a cell."""
    return re.sub(r"[|*\[`]", r"\\\g<0>", shown(text)).replace("<", "&lt;")


def _joined(items: Sequence[object] | range, text: Callable[..., str]) -> str:
    return f"| {' | '.join(map(text, items))} |"


def _marked(marks: dict[str, str], entry: GridEntry, raised: str, clean: Callable[[str], str]) -> str:
    text = marks[entry.mark].format(clean(entry.text)) if entry.text else ""
    return text + (raised.format(entry.notes) if entry.notes else "")


def latex_grid(grid: Grid) -> str:
    """A `tabular` with booktabs' rules; best is bold, second best underlined."""
    marks = {"": "{}", "best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "quiet": "{}"}
    columns = "l" * grid.left + "r" * (len(grid.head) - grid.left)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    if grid.title:
        lines.append(rf"\multicolumn{{{len(grid.head)}}}{{l}}{{\textbf{{{latex_text(grid.title)}}}}} \\")
    lines += [" & ".join(latex_text(head.replace("\n", " ")) for head in grid.head) + r" \\", r"\midrule"]
    for number, row in enumerate(grid.rows):
        lines += [r"\midrule"] if number in grid.breaks else []
        lines.append(" & ".join(_marked(marks, entry, r"$^{{{}}}$", latex_text) for entry in row) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "−": "$-$", "·": r"$\cdot$",
    "▲": r"$\blacktriangle$", "▼": r"$\blacktriangledown$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
    "α": r"$\alpha$", "λ": r"$\lambda$", "ᾱ": r"$\bar\alpha$", "×": r"$\times$", "≤": r"$\le$", "½": r"$\frac12$",
    "τ": r"$\tau$", "ε": r"$\varepsilon$", "†": r"\dag{}", "…": r"\dots{}", "≈": r"$\approx$",
}  # fmt: skip


def latex_text(text: str) -> str:
    """A plain text for LaTeX."""
    return "".join(LATEX.get(letter, letter) for letter in shown(text))
