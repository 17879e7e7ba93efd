"""What comes from files reaches a terminal, a picture and a page as text, never as an order."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
import torch
from rich.console import Console

import gnnsafe
from gnnsafe.cli import output
from gnnsafe.display import FALLBACK, shown, shown_lines
from gnnsafe.errors import InputError
from gnnsafe.report.document import Document, Section, as_html, as_latex, as_markdown, print_document
from gnnsafe.report.grid import Grid, GridEntry
from gnnsafe.report.results import as_csv

NASTY = "\x1b[31mred\x00\x07\u202egnp.exe\ud800\x9b<!--</script><b>[/red]\r\n\ufffe|`*$&%é漢"


def test_shown():
    assert shown("plain é 漢 👩‍🔬") == "plain é 漢 👩‍🔬"
    assert shown("a\tb\r\n\x1b[2J\x9b\u202e\ud800\u2028") == r"a\tb\r\n\x1b[2J\x9b\u202e\ud800\u2028"
    assert shown_lines("a\n\x1bb") == "a\n\\x1bb"
    assert str(InputError("a\nb\x1b")) == r"a\nb\x1b"


def test_letters_that_a_terminal_has_not():
    assert "5 ± 1 … ▁█ é漢".encode("ascii", FALLBACK) == rb"5 +/- 1 ... 1# \xe9\u6f22"
    assert "5 ± 1 – é漢".encode("cp1252", FALLBACK) == b"5 \xb1 1 \x96 \xe9\\u6f22"
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("ascii", FALLBACK)


def test_a_terminal_and_a_progress_bar_print_texts_only():
    screen = io.StringIO()
    console = output.Terminal(file=screen, force_terminal=True, highlight=False, markup=False, emoji=False, width=200)
    console.print(NASTY, soft_wrap=True)
    with output.progress_bar() as progress:
        progress.disable, progress.live.console = False, console
        progress.add_task(f"Reading {NASTY}")
        console.print(progress.get_renderable())
    text = screen.getvalue()
    assert text.count("[/red]") == 2
    assert "\x1b[31mred" not in text
    assert not {"\x00", "\x07", "\u202e", "\ud800", "\x9b", "\r"} & {*text}


def document() -> Document:
    grid = Grid(NASTY, ["method", NASTY], [[GridEntry(NASTY, "best"), GridEntry(NASTY, notes="1")]])
    chart = {"title": NASTY, "data": {"values": [{"name": NASTY}]}, "mark": "point"}
    return Document(NASTY, [NASTY], [Section(NASTY, [NASTY], [grid], [NASTY], chart, name="chart")])


def test_every_kind_of_document_is_clean():
    screen = Console(file=io.StringIO(), width=500, markup=False)
    print_document(document(), output.Terminal(file=screen.file, width=500, markup=False, highlight=False))
    page = as_html(document())
    page = page[: page.index("<script>")] + page[page.index("</head>") :]  # without Vega itself
    for text in (screen.file.getvalue(), page, as_markdown(document(), "figures"), as_latex(document(), "figures")):
        text.encode()
        assert not {"\x1b", "\x00", "\x07", "\u202e", "\x9b", "\r", "\ufffe"} & {*text}
    assert "<b>" not in as_markdown(document(), "figures")

    class Reader(HTMLParser):
        seen: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag, _):
            self.seen.append(tag)

        def handle_comment(self, data):
            self.seen.append("comment")

    reader = Reader()
    reader.feed(page)
    assert "b" not in reader.seen
    assert "comment" not in reader.seen
    assert reader.seen.count("script") == 2
    spec = page[page.index("vegaEmbed(") :].split(", ", 1)[1]
    assert json.JSONDecoder().raw_decode(spec)[0] == document().sections[0].chart


@pytest.mark.parametrize("ending", ["svg", "png", "html"])
def test_a_node_called_by_anything_is_drawn(blocks, tmp_path, ending):
    """A control character in an id made the chart's library end the process."""
    blocks.node_id = [f"{NASTY}{i}" for i in range(blocks.num_nodes)]
    blocks.class_names = [NASTY, "b", "c"]
    torch.manual_seed(0)
    why = gnnsafe.Detector(gnnsafe.models.GCN(8, 4, 3)).fit(blocks).calibrate(blocks).explain(blocks, node=3)
    assert all(letter.isprintable() or letter == "\n" for letter in str(why))
    why.draw(tmp_path / f"why.{ending}")
    if ending == "svg":
        assert r"\x1b[31mred\x00" in "".join(ElementTree.parse(tmp_path / "why.svg").getroot().itertext())


def test_no_text_of_a_table_for_people_is_a_formula(record):
    lines = as_csv([record(method="=cmd()|' /C calc'!A0"), record(method="-2+3"), record(method="MSP")]).splitlines()
    assert {line.split(",")[5] for line in lines[1:]} > {"'=cmd()|' /C calc'!A0", "'-2+3", "MSP"}
