from __future__ import annotations

import json
import re

from gnnsafe.report.leaderboard import as_leaderboard_page, command, leaderboard


def test_an_entry_has_its_figures_and_its_record(record):
    records = [record(shift="structure", seed=seed, auroc=auroc, within_degrees=0.6, memory=100.0 + seed,
                      source="/data/cora", chosen={"lr": "0.01, as in the published runs"})
               for seed, auroc in enumerate((0.7, 0.8, 0.9))]  # fmt: skip
    (entry,) = leaderboard(records)["entries"]
    assert (entry["method"], entry["regime"], entry["selection"], entry["exposure"]) == (
        "MSP",
        "whole",
        "validation",
        False,
    )
    assert (entry["auroc"], entry["within_degrees"]) == (80.0, 60.0)
    behind = entry["record"]
    assert behind["by_seed"] == [70.0, 80.0, 90.0]
    assert behind["memory_mib"] == 102
    assert behind["how_chosen"] == {"lr": "0.01, as in the published runs"}
    expected = (
        "gnnsafe bench --datasets cora --shifts structure --methods msp --backbones gcn --seeds 3 --protocol paper"
    )
    assert behind["command"] == expected


def test_commands_can_be_typed(record):
    assert "--methods gnnsafe-keep " in command(record(method="GNNSafe, keep"), 1)
    assert "--methods FILE.py " in command(record(method="Mine", code="abc"), 1)
    assert command(record(selection="test"), 5).endswith("--selection test")
    searched = record(chosen={"lr": "0.1, lowest ID validation loss among 0.1, 0.01, 0.001"}, epochs=20)
    assert command(searched, 2).endswith("--epochs 20 --search")


def test_controls_and_what_they_explain(record):
    records = [record(shift="structure", auroc=0.7), record(shift="control-nothing", auroc=0.65)]
    entries = {entry["shift"]: entry for entry in leaderboard(records)["entries"]}
    assert entries["control-nothing"]["regime"] == "control"
    assert entries["structure"]["explained"]
    assert not entries["control-nothing"]["explained"]


def test_what_test_data_chose_is_apart(record):
    entries = leaderboard([record(auroc=0.7), record(auroc=0.9, selection="test")])["entries"]
    assert {(entry["selection"], entry["auroc"]) for entry in entries} == {("validation", 70.0), ("test", 90.0)}


def test_the_page_is_one_file_and_no_text_acts_in_it(record):
    name = "</script><script>alert(1)</script>\x1b[31m"
    page = as_leaderboard_page(leaderboard([record(method=name)]))
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert not re.search(r"(src|href)=|https?://|@import|fetch\(|XMLHttpRequest|innerHTML", page)
    held = re.search(r'<script id="board" type="application/json">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(held)["entries"][0]["method"].startswith("</script>")
    for word in ("regime", "data set", "exposure", "selected by", "showModal", "ariaSort"):
        assert word in page
