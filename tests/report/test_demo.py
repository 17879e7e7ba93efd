from __future__ import annotations

import importlib
import io
import re
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from gnnsafe.bench.run import Result
from gnnsafe.bench.summary import summaries
from gnnsafe.errors import MissingExtraError
from gnnsafe.metrics import detection, threshold
from gnnsafe.report.demo import PANELS, demo_document, demo_grid
from gnnsafe.report.distributions import distributions
from gnnsafe.report.document import as_html
from gnnsafe.report.grid import terminal_grid
from gnnsafe.report.plotting import altair


@pytest.fixture
def results() -> list[Result]:
    rng = np.random.default_rng(0)

    def result(shift: str, seed: int, method: str) -> Result:
        inside, outside = rng.normal(-5, 1, 200), rng.normal(-3, 1, 300)
        inside, outside = inside.astype(np.float32), outside.astype(np.float32)
        right = inside < -4.5
        return Result("cora", shift, seed, method, detection(inside, outside), 0.75, inside, outside, right)

    methods = ("MSP", "Energy", "GNNSafe", "GNNSafe++", "TwoScale")
    return [result(shift, seed, m) for shift in ("structure", "label") for seed in (0, 1) for m in methods]


def test_the_demo_table(results):
    table = [[entry.text for entry in row] for row in demo_grid(summaries(results)).rows]
    assert [row[0] for row in table] == ["structure", "", "", "", "", "label", "", "", "", ""]
    assert [row[3] for row in table] == ["70.9", "71.7", "87.5", "90.6", "–", "91.4", "91.4", "92.8", "92.8", "–"]
    assert all(re.fullmatch(r"\d+\.\d ± \d+\.\d", text) for row in table for text in (row[2], *row[4:]))
    figures = summaries(results)[0].metrics
    order = ("auroc", "aupr_in", "fpr95", "accuracy")
    assert [table[0][k].split()[0] for k in (2, 4, 5, 6)] == [f"{figures[name][0]:.1f}" for name in order]
    alone = demo_grid(summaries(results[:1])).rows
    assert re.fullmatch(r"\d+\.\d", alone[0][2].text)


def test_the_demo_table_fits_80_columns(results):
    screen = io.StringIO()
    Console(file=screen, width=80).print(terminal_grid(demo_grid(summaries(results))))
    text = screen.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("±") == 10 * 4


def test_the_threshold_is_drawn_where_95_percent_of_id_nodes_lie_left(results, values):
    spec = distributions(results, PANELS).to_dict()
    panels = [panel for row in spec["vconcat"] for panel in row["hconcat"]]
    assert [len(row["hconcat"]) for row in spec["vconcat"]] == [4, 4]
    first = next(r for r in results if r.method == "Energy")
    line = values(spec, panels[0]["layer"][1])[0]["threshold"]
    assert line == pytest.approx(threshold(first.id_scores))
    assert np.mean(first.id_scores <= line) == pytest.approx(0.95)
    titles = [panel["title"]["text"] for panel in panels]
    axes = [panel["layer"][0]["encoding"]["x"]["title"] for panel in panels]
    assert axes[:4] == ["energy (higher = more OOD)"] * 3 + ["score (higher = more OOD)"]
    assert titles[3] == "TwoScale, structure shift"
    assert titles[:3] == ["Energy, structure shift", "GNNSafe, structure shift", "GNNSafe++, structure shift"]


def test_histograms_hold_every_node_once(results, values):
    spec = distributions(results).to_dict()
    bars = values(spec, spec["vconcat"][0]["hconcat"][0]["layer"][0])
    energy = next(r for r in results if r.method == "Energy")
    for nodes, scores in (("ID", energy.id_scores), ("OOD", energy.ood_scores)):
        mine = [bar for bar in bars if bar["nodes"] == nodes]
        assert sum(bar["share"] for bar in mine) == pytest.approx(1.0, abs=1e-3)
        middle = sum(bar["share"] * (bar["from"] + bar["to"]) / 2 for bar in mine)
        assert middle == pytest.approx(scores.mean(), abs=0.05)


def test_the_page_is_one_file_that_needs_no_network(results):
    page = as_html(demo_document(results, lead="from here", notes=["note & more"]))
    assert not re.search(r"<(script|link)[^>]*\b(src|href)=", page)
    assert not re.search(r"\b(src|href)=[\"']?https?:", page)
    assert "note &amp; more" in page
    tags = Counter()
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, _: tags.update([tag])
    parser.feed(page)
    assert tags["tr"] == 1 + 10
    assert tags["html"] == tags["body"] == tags["figure"] == 1
    assert len(page) < 5_000_000


def test_a_missing_plotting_library_is_said_in_one_line(monkeypatch):
    real = importlib.import_module

    def without_altair(name, *args):
        if name == "altair":
            raise ModuleNotFoundError("No module named 'altair'", name="altair")
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", without_altair)
    with pytest.raises(MissingExtraError, match=r"the report needs altair: pip install 'gnnsafe\[report\]'"):
        altair()
