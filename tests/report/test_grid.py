from __future__ import annotations

import io

from rich.console import Console

from gnnsafe.report.document import Document, Section, as_html
from gnnsafe.report.grid import Grid, GridEntry, latex_grid, latex_text, markdown_grid, terminal_grid

GRID = Grid(
    "Cora & co",
    ["method", "a\nb"],
    [[GridEntry("MSP_|", notes="12"), GridEntry("1.0±0.1▲", "best")], [GridEntry("OE*"), GridEntry("0.9", "second")],
     [GridEntry("<x>"), GridEntry("–", "quiet")]],
    breaks=[2],
)  # fmt: skip


def test_terminal():
    screen = io.StringIO()
    Console(file=screen, width=40).print(terminal_grid(GRID))
    lines = [line.split() for line in screen.getvalue().splitlines()]
    assert lines == [
        ["Cora", "&", "co"],
        ["a"],
        ["method", "b"],
        ["MSP_|¹²", "1.0±0.1▲"],
        ["OE*", "0.9"],
        [],
        ["<x>", "–"],
    ]


def test_markdown():
    assert markdown_grid(GRID).splitlines() == [
        "**Cora & co**",
        "",
        "| method | a b |",
        "| :--- | ---: |",
        "| MSP_\\|<sup>12</sup> | **1.0±0.1▲** |",
        "| OE\\* | *0.9* |",
        "| &lt;x> | – |",
    ]


def test_latex():
    assert latex_grid(GRID).splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"\multicolumn{2}{l}{\textbf{Cora \& co}} \\",
        r"method & a b \\",
        r"\midrule",
        r"MSP\_|$^{12}$ & \textbf{1.0$\pm$0.1$\blacktriangle$} \\",
        r"OE* & \underline{0.9} \\",
        r"\midrule",
        r"<x> & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert latex_text("50 % of {x}_1 #2 α") == r"50 \% of \{x\}\_1 \#2 $\alpha$"


def test_html():
    page = as_html(Document("", [], [Section("", grids=[GRID])]))
    assert "<caption>Cora &amp; co</caption>" in page
    assert '<td class="left">MSP_|<sup>12</sup></td><td class="best">1.0±0.1▲</td>' in page
    assert '<tr class=first><td class="left">&lt;x&gt;</td><td class="quiet">–</td></tr>' in page
