"""A report as a document: sections with texts, grids and charts; for the terminal, as Markdown, LaTeX and one page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from gnnsafe.display import shown
from gnnsafe.report.grid import (
    Grid,
    html_grid,
    html_text,
    latex_grid,
    latex_text,
    markdown_grid,
    markdown_text,
    terminal_grid,
)
from gnnsafe.report.plotting import vega_library

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
        width = max(console.width, console.measure(table, options=widest).maximum)
        console.print(table, width=width, crop=False)
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


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1f24; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.15rem; margin-top: 2.4rem }
p.lead { color: #57606a; margin: .2rem 0 } p.note { color: #57606a; font-size: .88rem; margin: .25rem 0 }
nav { columns: 3; font-size: .92rem; margin: 1.2rem 0 } nav a { display: block; color: #2b5c8a; text-decoration: none }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .8rem 0 1.4rem; font-size: .92rem }
caption { text-align: left; font-weight: 600; padding: .2rem .6rem } td, th { padding: .2rem .6rem }
td, th { white-space: nowrap }
th, td { text-align: right } .left { text-align: left } th { border-bottom: 2px solid #1b1f24; cursor: pointer }
th { vertical-align: bottom; white-space: pre-line } tr.first td { border-top: 1px solid #d0d7de }
tbody tr:hover { background: #f3f6f9 } .best { font-weight: 700 } .second { text-decoration: underline }
.quiet { color: #57606a } figure, .wide { margin: 0; overflow-x: auto } sup { font-size: .7em }
th[data-sorted="up"]::after { content: " ▴" } th[data-sorted="down"]::after { content: " ▾" }
:root { color-scheme: light dark }
@media (prefers-color-scheme: dark) {
  body { color: #d7dde3; background: #15191e } p.lead, p.note, .quiet { color: #9aa5b1 } nav a { color: #7fb2e5 }
  th { border-bottom-color: #d7dde3 } tr.first td { border-top-color: #39424c } tbody tr:hover { background: #212830 }
}
@media print { body { color: #000; background: #fff } }
"""

SORTING = """
for (const table of document.querySelectorAll("table.grid")) table.querySelectorAll("th").forEach((head, column) => {
  head.title = "sort by this column";
  head.onclick = () => {
    const value = row => row.cells[column].firstChild?.textContent ?? "", number = row => parseFloat(value(row));
    const down = head.dataset.sorted !== "down", body = table.tBodies[0];
    const rows = [...body.rows].sort((a, b) => {
      if (isNaN(number(a)) || isNaN(number(b)))
        return isNaN(number(a)) - isNaN(number(b)) || value(a).localeCompare(value(b)) * (down ? 1 : -1);
      return (number(b) - number(a)) * (down ? 1 : -1);
    });
    table.querySelectorAll("th").forEach(other => delete other.dataset.sorted);
    head.dataset.sorted = down ? "down" : "up";
    rows.forEach(row => { row.className = ""; body.append(row) });
  };
});
"""

# Charts are as dark as the page, but for its own background.
LOOK = """
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
const look = dark ? {actions: false, theme: "dark", config: {background: "transparent"}} : {actions: false};
"""


def as_html(document: Document) -> str:
    """One page that needs no network: tables that sort by a click, charts that answer the pointer."""
    charts = any(section.chart is not None for section in document.sections)
    library = f"<script>{vega_library()}\n{LOOK}</script>" if charts else ""
    links = "".join(f'<a href="#s{number}">{html_text(s.title)}</a>' for number, s in enumerate(document.sections))
    contents = f"<nav>{links}</nav>" if len(document.sections) > 3 else ""
    lead = "".join(f'<p class="lead">{html_text(text)}</p>' for text in document.lead)
    sections = "\n".join(_html_section(number, section) for number, section in enumerate(document.sections))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html_text(document.title)}</title><style>{STYLE}</style>{library}</head><body>
<h1>{html_text(document.title)}</h1>{lead}{contents}
{sections}
<script>{SORTING}</script></body></html>
"""


def _html_section(number: int, section: Section) -> str:
    parts = [f'<h2 id="s{number}">{html_text(section.title)}</h2>'] * bool(section.title)
    parts += [f"<p>{html_text(text)}</p>" for text in section.text]
    parts += [f"<div class=wide>{html_grid(grid)}</div>" for grid in section.grids]
    if section.chart is not None:
        spec = json.dumps(section.chart, separators=(",", ":")).replace(
            "<", "\\u003c"
        )  # no end of the script, and no comment
        parts.append(f'<figure id="chart{number}" role="img" aria-label="{html_text(section.title)}"></figure>')
        parts.append(f'<script>vegaEmbed("#chart{number}", {spec}, look)</script>')
    parts += [f'<p class="note">{html_text(note)}</p>' for note in section.notes]
    return "\n".join(parts)
