from __future__ import annotations

import json
import re

import pytest

from gnnsafe.bench.figures import COMPARED, FIGURE_BACKBONES, figure_cells, sweep
from gnnsafe.report.choices import choices_section
from gnnsafe.report.document import Document, Section, as_latex, as_markdown
from gnnsafe.report.ranks import ranking
from gnnsafe.report.results import figure_section, study_document, write_figure, write_report


@pytest.fixture
def records(record):
    return [
        record(
            dataset=dataset, shift=shift, method=method, seed=seed, auroc=auroc + 0.01 * seed, exposure="+" in method
        )
        for dataset in ("cora", "amazon-photo")
        for shift in ("structure", "label")
        for method, auroc in {"MSP": 0.7, "Energy": 0.75, "GNNSafe++": 0.9}.items()
        for seed in range(2)
    ]


def test_the_document(records):
    document = study_document(records, {})
    assert [section.title for section in document.sections] == [
        "The order of methods", "Mean ranks", "ROC curves", "Accuracy of the nodes that are kept", "Spread over seeds",
        "Table 2: AUROC on Cora, Amazon and Coauthor", "Table 5: Cora", "Table 6: Amazon", "Table 8: time",
        "Notes on the paper's figures", "How hyper-parameters were chosen",
    ]  # fmt: skip
    assert document.lead[0].startswith("3 methods in 4 settings, up to 2 seeds; 24 records of gnnsafe 1, torch 2;")
    assert "No records for table 1." in document.sections[-2].text
    names = [section.name for section in document.sections if section.chart is not None]
    assert names == ["ranks-paper-gcn", "roc-paper-gcn", "accuracy-paper-gcn", "spread-paper-gcn"]


def test_protocols_and_backbones_have_sections_of_their_own(record):
    document = study_document([record(), record(backbone="gat"), record(protocol="rigorous", shift="rewire")], {})
    orders = [section.title for section in document.sections if section.title.startswith("The order")]
    assert orders == [
        "The order of methods (paper protocol, gat)",
        "The order of methods (paper protocol, gcn)",
        "The order of methods (rigorous protocol, gcn)",
    ]


def test_rows_of_an_order_may_be_of_two_codes_which_are_named(record):
    of_another = {"gnnsafe": "2", "torch": "2"}
    edited = [record(method=f"M{k}", versions=of_another) for k in range(6)]

    def lead(*records):
        return study_document(records, {}).lead[0]

    assert "3 records of gnnsafe 1 (1 record of M0: 2), torch 2;" in lead(record(), record(seed=1), edited[0])
    assert "7 records of gnnsafe 2 (1 record of MSP: 1), torch 2;" in lead(record(), *edited)
    assert " (6 records of 6 methods: 2), " in lead(*(record(seed=seed) for seed in range(7)), *edited)


def test_a_curve_is_the_mean_of_seeds_and_graphs(records, values):
    chart = next(s.chart for s in study_document(records, {}).sections if s.title == "ROC curves")
    points = values(chart, chart)
    first = records[0].curves.roc
    mine = [v["y"] for v in points if (v["setting"], v["method"]) == ("cora structure", "MSP")]
    assert mine == pytest.approx(first, abs=1e-4)
    assert len(points) == 4 * 3 * len(first)


def test_everything_is_written(records, tmp_path):
    paths = write_report(tmp_path / "new", study_document(records, {}), records)
    assert {path.name for path in paths.values()} == {
        "report.html",
        "RESULTS.md",
        "tables.tex",
        "tables.csv",
        "figures",
    }
    charts = {path.name for path in paths["charts"].iterdir()}
    assert len(charts) == 4 * 3
    for kind, start in {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}.items():
        assert (paths["charts"] / f"roc-paper-gcn.{kind}").read_bytes().startswith(start)
    page = paths["page"].read_text(encoding="utf-8")
    assert not re.search(r"\b(src|href)=[\"']?https?:", page)
    assert page.count("<figure") == page.count('vegaEmbed("#') == 4
    assert "class=grid" in page
    assert "head.onclick" in page
    assert len(page) < 5_000_000
    text = paths["Markdown"].read_text(encoding="utf-8")
    for link in re.findall(r"\]\((.*?)\)", text):
        assert (tmp_path / "new" / link).is_file()
    assert re.search(r"\| Energy<sup>\d</sup> \|", text)


def test_figure_2(record, values, tmp_path):
    cells = figure_cells(2, 2, 200, None)
    records = [
        record(
            shift=cell.shift, backbone=cell.backbone, seed=cell.seed, method=recipe.name, auroc=0.8 + 0.02 * cell.seed
        )
        for cell, recipes in cells
        for recipe in recipes
    ]
    section = figure_section(2, records)
    bars = values(section.chart, section.chart)
    assert len(bars) == 3 * len(FIGURE_BACKBONES) * len(COMPARED)
    assert all(v["AUROC"] == 81 and v["std"] == pytest.approx(2**0.5, abs=1e-3) for v in bars)
    assert "Mean of 2 seeds." in section.text
    names = [path.name for path in write_figure(2, records, tmp_path)]
    assert names == [f"figure-2.{kind}" for kind in ("html", "svg", "png", "pdf")]


def test_figure_3(record, values):
    points = sweep()
    records = [record(shift="structure", method=p.recipe.name, auroc=0.5 + k / 1000) for k, p in enumerate(points)]
    chart = figure_section(3, records).chart
    panels = chart["concat"]
    assert [panel["title"] for panel in panels] == list(dict.fromkeys(point.panel for point in points))
    drawn = [value for panel in panels for value in values(chart, panel)]
    assert [(value["x"], value["line"]) for value in drawn] == [(point.x, point.line) for point in points]
    assert [value["AUROC"] for value in drawn] == pytest.approx([50 + k / 10 for k in range(len(points))])
    titles = [(p["encoding"]["x"]["title"], p["encoding"].get("color", {}).get("title")) for p in panels]
    assert titles == [("K", "α"), ("K", "α"), ("t_in", "t_out"), ("λ", None)]


def test_figure_1_has_a_row_of_panels_for_each_graph(record):
    graphs = [("twitch", "domain", "ES"), ("twitch", "domain", "FR"), ("pubmed-years", "time", "2001-2005")]
    records = [
        record(dataset=dataset, shift=shift, ood=graph, method=method, seed=seed, auroc=0.5 + seed / 10)
        for dataset, shift, graph in graphs for method in ("Energy", "GNNSafe", "GNNSafe++") for seed in (1, 0)
    ]  # fmt: skip
    chart = figure_section(1, records).chart
    panels = [panel for row in chart["vconcat"] for panel in row["hconcat"]]
    titles = [panel["title"]["text"] for panel in panels]
    assert titles[:4] == ["Energy, twitch domain ES shift", "GNNSafe, twitch domain ES shift",
                          "GNNSafe++, twitch domain ES shift", "Energy, twitch domain FR shift"]  # fmt: skip
    assert len(titles) == 9
    assert all("AUROC 50.0" in panel["title"]["subtitle"] for panel in panels)  # of the first seed


def test_latex_and_markdown_of_a_chart():
    section = Section("50 % & more", ["why"], chart={"mark": "bar"}, name="a", notes=["* star"])
    document = Document("title", ["lead"], [section])
    assert as_markdown(document, "f").splitlines() == [
        "# title", "", "lead", "", "## 50 % & more", "", "why", "", "![50 % & more](f/a.svg)", "", r"\* star",
    ]  # fmt: skip
    latex = as_latex(document, "f")
    assert r"\includegraphics[width=\linewidth]{f/a.pdf}" in latex
    assert r"\caption{50 \% \& more. why * star}" in latex
    assert json.dumps(section.chart) not in latex


def test_choices_are_told_for_methods_and_settings(record):
    common, tuned = {"lr": "0.01, as in the published runs"}, "t_in -5, t_out -1, λ 1, as in the published runs"
    records = [
        record(shift=shift, method=method, chosen={**common, **({"margins": tuned} if "+" in method else {})})
        for shift in ("structure", "label")
        for method in ("MSP", "GNNSafe++")
    ]
    other = {"lr": "0.1, lowest loss", "margins": tuned}
    (grid,) = choices_section([*records, record(shift="structure", method="Energy FT", chosen=other)]).grids
    assert [[entry.text for entry in row] for row in grid.rows] == [
        ["lr", "0.01, as in the published runs", "MSP; GNNSafe++", "all settings"],
        ["margins", tuned, "GNNSafe++", "all settings"],
        ["lr", "0.1, lowest loss", "Energy FT", "cora structure"],
        ["margins", tuned, "Energy FT", "cora structure"],  # not where it has others
    ]
    (grid,) = choices_section(records).grids
    assert grid.rows[0][2].text == "all methods"


def test_the_rigorous_protocol_has_confidence_intervals(record):
    """Seeds 80, 81, 82: half the interval is 4.3027 · 1 / √3 = 2.484."""
    records = [
        record(protocol="rigorous", shift=shift, method=method, seed=seed, auroc=auroc + seed / 100)
        for shift, method, auroc in (("structure", "MSP", 0.8), ("rewire", "MSP", 0.7), ("rewire", "Energy", 0.6))
        for seed in range(3)
    ]
    section = next(s for s in study_document(records, {}).sections if s.title == "AUROC with confidence intervals")
    (grid,) = section.grids
    assert (grid.title, grid.head) == ("cora", ["method", "structure", "rewire"])
    assert [[entry.text for entry in row] for row in grid.rows] == [
        ["MSP", "81.0±2.5", "71.0±2.5"],
        ["Energy", "–", "61.0±2.5"],
    ]


def test_latex_is_ascii_and_has_the_footnotes(records):
    latex = as_latex(study_document(records, {}), "figures")
    assert latex.isascii()
    assert r"\paragraph{Notes on the paper's figures}" in latex
    assert "wrong direction" in latex


def test_equal_figures_are_no_reason_for_a_warning(record):
    records = [record(method=method, dataset=dataset, auroc=1.0) for method in "abc" for dataset in "xyz"]
    assert ranking(records).p_value == 1.0
