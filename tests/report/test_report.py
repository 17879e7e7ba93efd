from __future__ import annotations

import builtins
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
from gnnsafe.report import distributions as figure
from gnnsafe.report.page import write_page
from gnnsafe.report.table import rows, terminal_table


@pytest.fixture
def results() -> list[Result]:
    rng = np.random.default_rng(0)

    def result(shift: str, seed: int, method: str) -> Result:
        inside, outside = rng.normal(-5, 1, 200), rng.normal(-3, 1, 300)
        inside, outside = inside.astype(np.float32), outside.astype(np.float32)
        return Result("cora", shift, seed, method, detection(inside, outside), 0.75, inside, outside)

    methods = ("MSP", "Energy", "GNNSafe", "GNNSafe++")
    return [result(shift, seed, m) for shift in ("structure", "label") for seed in (0, 1) for m in methods]


def test_rows(results):
    table = rows(summaries(results))
    assert [row[0] for row in table] == ["structure", "", "", "", "label", "", "", ""]
    assert [row[3] for row in table] == ["70.9", "71.7", "87.5", "90.6", "91.4", "91.4", "92.8", "92.8"]
    assert all(re.fullmatch(r"\d+\.\d ± \d+\.\d", text) for row in table for text in (row[2], *row[4:]))
    figures = summaries(results)[0].metrics
    order = ("auroc", "aupr_in", "fpr95", "accuracy")
    assert [table[0][k].split()[0] for k in (2, 4, 5, 6)] == [f"{figures[name][0]:.1f}" for name in order]
    alone = rows(summaries(results[:1]))
    assert re.fullmatch(r"\d+\.\d", alone[0][2])


def test_the_table_fits_80_columns(results):
    screen = io.StringIO()
    Console(file=screen, width=80).print(terminal_table(summaries(results)))
    text = screen.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("±") == 8 * 4


def test_the_threshold_is_drawn_where_95_percent_of_id_nodes_lie_left(results):
    spec = figure.distributions(results).to_dict()
    assert len(spec["concat"]) == 2 * 3
    assert spec["columns"] == 3
    first = next(r for r in results if r.method == "Energy")
    line = spec["concat"][0]["layer"][1]["data"]["values"][0]["threshold"]
    assert line == pytest.approx(threshold(first.id_scores))
    assert np.mean(first.id_scores <= line) == pytest.approx(0.95)
    titles = [panel["title"]["text"] for panel in spec["concat"]]
    assert titles[:3] == ["Energy, structure shift", "GNNSafe, structure shift", "GNNSafe++, structure shift"]


def test_histograms_hold_every_node_once(results):
    bars = figure._histogram(results[0])
    for nodes in ("ID", "OOD"):
        mine = [bar for bar in bars if bar["nodes"] == nodes]
        assert sum(bar["share"] for bar in mine) == pytest.approx(1.0)
        scores = results[0].id_scores if nodes == "ID" else results[0].ood_scores
        middle = sum(bar["share"] * (bar["from"] + bar["to"]) / 2 for bar in mine)
        assert middle == pytest.approx(scores.mean(), abs=0.05)
    same = Result("cora", "label", 0, "MSP", results[0].detection, 0.5, np.ones(3, "f4"), np.ones(2, "f4"))
    assert sum(bar["share"] for bar in figure._histogram(same)) == pytest.approx(2.0)  # all scores equal: one bin


def test_the_page_is_one_file_that_needs_no_network(results, tmp_path):
    path = tmp_path / "new" / "page.html"
    write_page(path, results, title="a < b", lead="from here", notes=["note & more"])
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"<(script|link)[^>]*\b(src|href)=", page)
    assert not re.search(r"\b(src|href)=[\"']?https?:", page)
    assert "a &lt; b" in page
    assert "note &amp; more" in page
    tags = Counter()
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, _: tags.update([tag])
    parser.feed(page)
    assert tags["tr"] == 1 + 8
    assert tags["html"] == tags["body"] == tags["figure"] == 1
    assert len(page) < 5_000_000
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_plotting_library_is_said_in_one_line(monkeypatch):
    real = builtins.__import__

    def without_altair(name, *args, **kwargs):
        if name == "altair":
            raise ModuleNotFoundError("No module named 'altair'", name="altair")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_altair)
    with pytest.raises(MissingExtraError, match=r"the report needs altair: pip install 'gnnsafe\[report\]'"):
        figure.altair()
