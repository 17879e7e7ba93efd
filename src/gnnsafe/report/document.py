"""A report as a document: sections with texts, grids and charts; for the terminal, as Markdown, LaTeX and one page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from rich.console import Console

from gnnsafe.display import shown, shown_lines
from gnnsafe.report.grid import (
    Grid,
    latex_grid,
    latex_text,
    markdown_grid,
    markdown_text,
    terminal_grid,
)
from gnnsafe.report.plotting import vega_library

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["Document", "Section", "as_html", "as_latex", "as_markdown", "print_document", "print_section"]

WIDEST = 10_000  # columns; a measure of tables that are wider than the terminal


@dataclass(frozen=True)
class Section:
    """A title, paragraphs, grids, a chart's specification (drawn to files named `name`), and notes on reading them."""

    title: str
    text: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    notes: Sequence[str] = ()
    chart: dict[str, Any] | None = None
    name: str = ""
    narrow: Sequence[Grid] = ()
    """Instead of `grids` on a terminal that has no room for those."""


@dataclass(frozen=True)
class Document:
    """A title, what it is about, and sections."""

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]


def print_document(document: Document, console: Console) -> None:
    """Texts and grids; a chart is drawn to files alone."""
    console.print(*document.lead, sep="\n", soft_wrap=True)
    for section in document.sections:
        if section.chart is None or section.grids:
            console.print(f"\n{section.title}", style="bold", soft_wrap=True)
            print_section(section, console)


def print_section(section: Section, console: Console) -> None:
    """Its texts, its grids, or the narrow ones where the terminal has no room, and its notes."""
    console.print(*section.text, sep="\n", end="\n" if section.text else "", soft_wrap=True)
    tables = [terminal_grid(grid) for grid in section.grids]
    widest = console.options.update(width=WIDEST)
    if section.narrow and any(console.measure(table, options=widest).maximum > console.width for table in tables):
        tables = [terminal_grid(grid) for grid in section.narrow]
    for table in tables:  # a wider one runs on in the next line of a terminal, but loses nothing
        before, console.width = console.width, max(console.width, console.measure(table, options=widest).maximum)
        try:
            console.print(table, crop=False)  # whose own width is no more than the console's
        finally:
            console.width = before
    console.print(*section.notes, sep="\n", end="\n" if section.notes else "", soft_wrap=True)


def as_markdown(document: Document, figures: str) -> str:
    """Markdown, with charts as pictures from the folder `figures`."""
    parts = [f"# {markdown_text(document.title)}", *map(markdown_text, document.lead)]
    for section in document.sections:
        title = markdown_text(section.title)
        parts += [
            f"## {title}",
            *map(markdown_text, section.text),
            *(markdown_grid(grid).strip() for grid in section.grids),
        ]
        if section.chart is not None:
            parts.append(f"![{title}]({figures}/{section.name}.svg)")
        parts += map(markdown_text, section.notes)
    return "\n\n".join(parts) + "\n"


def as_latex(document: Document, figures: str) -> str:
    r"""Tables and figures for \input; they need the packages booktabs, graphicx and amssymb."""
    parts = [f"% {shown(document.title)}; needs the packages booktabs, graphicx, amssymb"]
    for section in document.sections:
        caption = " ".join([f"{section.title}.", *section.text, *section.notes])
        body = [rf"\resizebox{{\ifdim\width>\linewidth\linewidth\else\width\fi}}{{!}}{{%{chr(10)}{latex_grid(grid)}}}"
                for grid in section.grids]  # fmt: skip
        if section.chart is not None:
            body.append(rf"\includegraphics[width=\linewidth]{{{figures}/{section.name}.pdf}}")
        if not body:
            parts += [rf"\paragraph{{{latex_text(section.title)}}}", *map(latex_text, [*section.text, *section.notes])]
        else:
            kind = "table" if section.grids else "figure"
            inner = [rf"\begin{{{kind}}}[t]\centering\small", *body, rf"\caption{{{latex_text(caption)}}}"]
            parts.append("\n".join([*inner, rf"\end{{{kind}}}"]))
    return "\n\n".join(parts) + "\n"


@cache
def _template() -> Template:
    """That of the page, in which every text is clean and escaped, and a chart is JSON that ends no script."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=PackageLoader("gnnsafe.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: shown_lines(value) if type(value) is str else value,
    )  # fmt: skip
    chart = partial(json.dumps, separators=(",", ":"))
    made.filters["script_json"] = lambda spec: Markup(chart(spec).replace("<", "\\u003c"))
    return made.get_template("document.html")


def as_html(document: Document) -> str:
    """One page that needs no network: tables that sort by a click, charts that answer the pointer."""
    charts = any(section.chart is not None for section in document.sections)
    return _template().render(document=document, library=vega_library() if charts else "")
