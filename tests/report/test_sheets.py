from __future__ import annotations

import csv
import io

import pytest

from gnnsafe.bench import paper
from gnnsafe.metrics import Detection
from gnnsafe.report.footnotes import Notes, figure_note, method_note
from gnnsafe.report.results import as_csv
from gnnsafe.report.sheets import Comparison, SheetColumn, _figure, sheets


@pytest.fixture
def records(record):
    """Twitch's three graphs and Cora under structure shift: three seeds, four methods, one of them our own."""
    settings = [("twitch", "domain", graph) for graph in ("ES", "FR", "RU")] + [("cora", "structure", "structure")]
    methods = {"MSP": 0.70, "GNNSafe": 0.80, "GNNSafe++": 0.90, "Laplace": 0.75}
    return [
        record(dataset=dataset, shift=shift, ood=graph, method=method, exposure="+" in method, seed=seed,
               auroc=auroc + 0.01 * seed)
        for dataset, shift, graph in settings for method, auroc in methods.items() for seed in range(3)
    ]  # fmt: skip


def test_the_tables_of_which_there_are_records(records):
    tables = {sheet.number: sheet for sheet in sheets(records)}
    assert list(tables) == [1, 2, 3, 5, 8]
    assert [block.title for block in tables[1].blocks] == ["Twitch"]
    assert [block.title for block in tables[3].blocks] == ["ES", "FR", "RU"]
    assert [column.label for column in tables[2].blocks[0].columns] == ["S"]
    assert [column.label for column in tables[5].blocks[0].columns] == ["AUROC", "AUPR", "FPR95", "ID ACC"]


def test_ours_stand_beside_the_papers(records):
    block = next(sheet for sheet in sheets(records) if sheet.number == 5).blocks[0]
    cell = block.rows["GNNSafe"][0]
    assert cell.values == pytest.approx((80, 81, 82))
    assert (cell.mean, cell.spread) == (pytest.approx(81), pytest.approx(1))
    assert cell.paper == paper.published("cora", "structure", "GNNSafe", table=5)
    assert block.rows["ODIN"][0].mean is None  # not run: the paper's figure stands alone
    assert block.rows["ODIN"][0].paper == 49.92
    assert block.rows["Laplace"][0].paper is None
    rows = list(block.rows)
    assert rows.index("Laplace") < rows.index("OE")  # methods without exposure first, the paper's before our own
    assert rows[:7] == ["MSP", "ODIN", "Mahalanobis", "Energy", "GKDE", "GPN", "GNNSafe"]


def test_table_1_is_the_mean_over_graphs_and_table_3_each_of_them(record):
    graphs = {"ES": 0.6, "FR": 0.7, "RU": 0.95}
    records = [record(dataset="twitch", shift="domain", ood=name, auroc=auroc) for name, auroc in graphs.items()]
    tables = {sheet.number: sheet for sheet in sheets(records)}
    assert tables[1].blocks[0].rows["MSP"][0].mean == pytest.approx(75)
    assert [block.rows["MSP"][0].mean for block in tables[3].blocks] == pytest.approx([60, 70, 95])


def test_a_difference_is_marked_beyond_what_one_more_seed_would_show():
    """Seeds 80, 81, 82: one more lies within 4.3027 · √(1 + 1/3) = 4.968 of their mean, 95 times in 100."""
    near, far = 81 - 4.96, 81 - 4.98
    assert Comparison((80, 81, 82), near).beyond == ""
    assert Comparison((80, 81, 82), far).beyond == "▲"
    assert Comparison((80, 81, 82), 162 - far).beyond == "▼"
    assert Comparison((80,), 1.0).beyond == ""  # one seed has no spread
    assert Comparison((80, 81, 82), None).beyond == ""
    assert Comparison((80, 81, 82), far, comparable=False).beyond == ""


def test_best_and_second_best_are_marked_within_their_group(records):
    block = next(sheet for sheet in sheets(records) if sheet.number == 5).blocks[0]
    assert {method: row[0].place for method, row in block.rows.items() if row[0].values} == {
        "MSP": 0, "GNNSafe": 1, "Laplace": 2, "GNNSafe++": 1
    }  # fmt: skip
    fpr = [row[2].place for row in block.rows.values() if row[2].values]
    assert fpr == [1, 1, 1, 1]  # all alike
    assert all(row[3].place == 0 for row in block.rows.values())  # accuracy is there for comparison


def test_lower_is_better_for_fpr(record):
    metrics = {"auroc": 0.5, "aupr_in": 0.5, "aupr_out": 0.5, "fpr95_out": 0.5}
    values = {"MSP": 0.3, "Energy": 0.1, "GNNSafe": 0.2}
    records = [record(method=method, metrics={**metrics, "fpr95": value}) for method, value in values.items()]
    rows = next(sheet for sheet in sheets(records) if sheet.number == 5).blocks[0].rows
    assert [rows[method][2].place for method in values] == [0, 1, 2]


def test_times_are_in_milliseconds(records):
    table = next(sheet for sheet in sheets(records) if sheet.number == 8)
    training, inference = table.grids(Notes())
    assert [entry.text for entry in training.rows[0]] == ["MSP", "5±0", "8", "5±0", "8"]
    assert [entry.text for entry in inference.rows[0]] == ["MSP", "12±0", "13", "12±0", "40"]
    assert training.head == ["method", "Cora", "paper", "Twitch", "paper"]


def test_a_grid_has_marks_footnotes_and_a_line_before_exposure(records):
    notes = Notes()
    grid = next(sheet for sheet in sheets(records) if sheet.number == 2).grids(notes)[0]
    assert grid.head == ["method", "S ↑", "paper"]
    rows = {row[0].text: row for row in grid.rows}
    assert (rows["GNNSafe"][1].text, rows["GNNSafe"][1].mark) == ("81.0±1.0▼", "best")
    assert (rows["Laplace"][1].text, rows["Laplace"][2].text) == ("76.0±1.0", "–")
    assert rows["ODIN"][1].text == "–"
    assert grid.breaks == [8]
    assert notes.lines()[int(rows["ODIN"][0].notes) - 1].startswith(
        f"{rows['ODIN'][0].notes}. published with the wrong"
    )
    assert rows["MSP"][0].notes == ""


def test_the_papers_contradictions_are_found():
    assert figure_note(2, "amazon-photo", "label", "Energy FT", "AUROC") == "table 6 has 96.61"
    assert figure_note(6, "amazon-photo", "label", "Energy FT", "AUROC") == "table 2 has 97.35"
    assert figure_note(2, "coauthor-cs", "feature", "GPN", "AUROC") == "table 7 has 81.77"
    assert figure_note(1, "twitch", "domain", "Mahalanobis", "AUROC") == (
        "that of RU alone; the mean of table 3 is 47.25"
    )
    assert figure_note(1, "twitch", "domain", "ODIN", "AUROC") == "the mean of table 3 is 67.44"
    assert figure_note(1, "twitch", "domain", "GNNSafe", "AUROC") == ""
    assert figure_note(1, "twitch", "domain", "MSP", "ID_ACC") == "ROC-AUC under that name; ours is accuracy"
    assert figure_note(1, "twitch", "domain", "Laplace", "ID_ACC") == ""
    assert figure_note(5, "cora", "structure", "GNNSafe", "AUROC") == ""
    assert "wrong direction" in method_note("Mahalanobis", 2)
    assert method_note("Mahalanobis", 8) == ""


def test_csv_has_every_figure(records):
    rows = list(csv.DictReader(io.StringIO(as_csv(records))))
    wanted = {"table": "5", "dataset": "cora", "shift": "structure", "method": "GNNSafe", "metric": "AUROC"}
    (row,) = (row for row in rows if wanted.items() <= row.items())
    assert (float(row["mean"]), float(row["std"]), row["seeds"], row["paper"]) == (81, 1, "3", "87.52")
    assert (row["beyond_spread"], row["place"], row["exposure"]) == ("▼", "1", "False")
    assert as_csv([]).count("\n") == 1


def test_csv_has_what_is_in_no_table_of_the_paper_too(record):
    text = as_csv([record(protocol="rigorous", shift="rewire"), record(protocol="rigorous", shift="rewire", seed=1)])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["metric"] for row in rows} == {*Detection._fields, "accuracy"}
    assert {(row["table"], row["protocol"], row["shift"], row["seeds"]) for row in rows} == {
        ("", "rigorous", "rewire", "2")
    }


def test_accuracy_is_not_compared_with_the_papers_auc(records):
    cell = next(sheet for sheet in sheets(records) if sheet.number == 1).blocks[0].rows["MSP"][3]
    assert (cell.paper, cell.beyond) == (68.72, "")


def test_seeds_are_told_and_cells_with_fewer_of_them(records):
    fewer = [r for r in records if (r.method, r.dataset, r.seed) != ("MSP", "cora", 2)]
    (grid,) = next(sheet for sheet in sheets(fewer) if sheet.number == 2).grids(Notes())
    assert grid.title == "Cora, 3 seeds"
    assert [row[1].text for row in grid.rows if row[0].text in ("MSP", "GNNSafe")] == ["70.5±0.7 of 2", "81.0±1.0▼"]


def test_milliseconds_have_no_exponent():
    assert [_figure(SheetColumn("", "cora", "", "inference_s"), s) for s in (0.0996, 0.09944, 1.2)] == [
        "100",
        "99",
        "1200",
    ]
