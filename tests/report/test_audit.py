from __future__ import annotations

import re

from gnnsafe.bench import paper
from gnnsafe.bench.search import SEARCH_STEPS
from gnnsafe.report.audit import audit_section
from gnnsafe.report.order import order_lines
from gnnsafe.report.results import as_csv, order_sections, study_document


def texts(grid):
    return [[entry.text for entry in row] for row in grid.rows]


def test_published_test_selected_and_honest_side_by_side(record):
    honest = [record(shift=shift, method="Energy", auroc=auroc, seed=seed) for shift, auroc in
              (("structure", 0.7), ("label", 0.9)) for seed in range(2)]  # fmt: skip
    chosen = [record(shift=shift, method="Energy", auroc=auroc, seed=seed, selection="test") for shift, auroc in
              (("structure", 0.78), ("label", 0.91)) for seed in range(2)]  # fmt: skip
    alone = [record(method="MSP", auroc=0.99, selection="test"), record(method="ODIN", auroc=0.6)]
    section = audit_section([*honest, *chosen, *alone])
    summary, rows = map(texts, section.grids)
    assert rows == [
        ["Energy", "cora", "label", f"{paper.published('cora', 'label', 'Energy'):.2f}", "91.0", "90.0", "+1.0"],
        [
            "Energy",
            "cora",
            "structure",
            f"{paper.published('cora', 'structure', 'Energy'):.2f}",
            "78.0",
            "70.0",
            "+8.0",
        ],
    ]
    assert summary == [["Energy", "paper", "gcn", "2", "+4.5"]]
    assert "never ranked" in section.text[0]
    assert "test-selected" in section.grids[1].head


def test_test_selected_figures_are_in_no_other_table(record):
    records = [record(method="Energy", auroc=0.7), record(method="Energy", auroc=0.95, selection="test")]
    (section,) = order_sections(records)
    assert texts(section.grids[0])[0][2] == "70.0"
    assert ",AUROC,95," not in as_csv(records)
    assert ",auroc,95," not in as_csv(records)
    assert ",auroc,70," in as_csv(records)
    assert order_lines(records[:1])
    document = study_document(records, {})
    others = [section for section in document.sections if not section.title.startswith("Audit")]
    grids = [grid for section in others for grid in section.grids]
    assert not any("95.0" in entry for grid in grids for row in texts(grid) for entry in row)


def test_nothing_to_audit(record):
    assert audit_section([record(method="Energy")]) is None
    assert audit_section([record(method="Energy", selection="test")]) is None
    assert audit_section([]) is None


def test_test_selected_records_alone_are_not_passed_over_in_silence(record):
    """They are in no table: a report of them was its title."""
    chosen = [record(method="Energy", selection="test"), record(method="MSP", selection="test")]
    alone = study_document(chosen, {})
    assert alone.sections == []
    assert re.search("settings of 2 records: these are ranked nowhere.*'--search'", alone.lead[0])
    assert not any("ranked nowhere" in line for line in study_document([record(method="MSP"), *chosen], {}).lead)
    assert "ranked nowhere" in study_document([record(method="ODIN"), *chosen], {}).lead[-1]


def test_the_text_says_whether_honest_values_were_searched_for(record):
    chosen = record(method="Energy", auroc=0.9, selection="test")
    searched = {"lr": f"0.1, {SEARCH_STEPS[0].reason}"}
    by_search = audit_section([chosen, record(method="Energy", auroc=0.7, chosen=searched)])
    published = audit_section([chosen, record(method="Energy", auroc=0.7)])
    assert "margins chosen by ID validation" in by_search.text[0]
    assert "not searched for" in published.text[0]


def test_an_audit_of_its_own_stands_for_the_studys(record):
    study = [record(method="Energy", auroc=0.6)]
    audited = [record(method="Energy", auroc=0.7), record(method="Energy", auroc=0.9, selection="test")]
    (section,) = [s for s in study_document(study, {}, audited).sections if s.title.startswith("Audit")]
    assert texts(section.grids[1])[0][4:] == ["90.0", "70.0", "+20.0"]
