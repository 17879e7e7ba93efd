"""A study as one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from gnnsafe.bench.run import Result
from gnnsafe.bench.summary import summaries
from gnnsafe.files import replacing
from gnnsafe.report.distributions import distributions, offline_chart
from gnnsafe.report.table import COLUMNS, rows

__all__ = ["write_page"]

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1f24; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin-top: 2.2rem }
p.lead { color: #57606a; margin-top: .3rem } p.note { color: #57606a; font-size: .9rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .9rem; text-align: right; white-space: nowrap } th { border-bottom: 2px solid #1b1f24 }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left } tr.first td { border-top: 1px solid #d0d7de }
tr td:first-child { font-weight: 600 } figure { margin: 0; overflow-x: auto }
"""


def write_page(path: Path, results: Sequence[Result], *, title: str, lead: str, notes: Sequence[str]) -> None:
    """Write the table and the distributions to `path`, whole or not at all."""
    library, chart = offline_chart(distributions(results))
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{STYLE}</style><script>{library}</script></head><body>
<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>
<h2>How well each method tells OOD from ID nodes</h2>
{_table(results)}
{"".join(f'<p class="note">{escape(note)}</p>' for note in notes)}
<h2>Energies of ID and OOD test nodes</h2>
<p>One panel per shift and method, first seed. The dashed line is the threshold that accepts 95 % of ID nodes: orange to
the left of it is missed (FPR95), blue to the right of it is a false alarm. Outermost bars hold the 1 % of nodes beyond
them.</p>
<figure id="distributions"></figure>
<script>vegaEmbed("#distributions", {chart}, {{"actions": false}})</script>
</body></html>
"""
    with replacing(path) as part:
        part.write_text(page, encoding="utf-8")


def _table(results: Sequence[Result]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
    body = "".join(
        f"<tr{' class=first' if row[0] else ''}>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>\n"
        for row in rows(summaries(results))
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
