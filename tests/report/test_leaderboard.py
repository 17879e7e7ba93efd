from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from gnnsafe.report.leaderboard import as_leaderboard_page, command, leaderboard

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


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
    elsewhere = record(versions={"gnnsafe": "1", "torch": "2.13.0 on cuda"})
    assert command(elsewhere, 1).endswith("--protocol paper --device cuda")


def test_a_command_names_every_shift_that_a_choice_was_made_for(record):
    """With one of them alone the search would choose by that one, and other figures might come out."""
    chosen = {"lr": "0.1, lowest ID validation loss among 0.1, 0.01, 0.001, mean over structure, feature"}
    assert " --shifts structure,feature --methods msp " in command(record(shift="feature", chosen=chosen), 1)


def test_a_command_runs_every_seed_that_there_is(record):
    """Seed 1 failed: two of them are 0 and 2."""
    (entry,) = leaderboard([record(seed=0), record(seed=2)])["entries"]
    assert entry["record"]["seeds"] == [0, 2]
    assert " --seeds 3 " in entry["record"]["command"]


def test_controls_and_what_they_explain(record):
    records = [record(shift="structure", auroc=0.7), record(shift="control-nothing", auroc=0.65)]
    entries = {entry["shift"]: entry for entry in leaderboard(records)["entries"]}
    assert entries["control-nothing"]["regime"] == "control"
    assert entries["structure"]["explained"]
    assert not entries["control-nothing"]["explained"]


def test_a_substitutes_figures_are_told_beside_what_degrees_say(record):
    page = as_leaderboard_page(leaderboard([record(dataset="arxiv-topics", shift="time", within_degrees=0.6)]))
    for words in ("substitute feature", "DegreeBalance", "equal degrees"):
        assert words in page.partition("<form")[0]


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


def drawn(page) -> str:
    """The page as a browser has it."""
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent / 'profile'}"]
    command = [*words, "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_draws_it(record, tmp_path):
    """Best first by the first regime, however much a control says; what test data chose is not there at first."""
    records = [
        record(method=method, dataset=dataset, shift=shift, auroc=auroc)
        for method, figures in (("Energy", (0.8, 0.9, 0.5)), ("GRASP", (0.7, 0.8, 0.9)))
        for (dataset, shift), auroc in zip(
            (("cora", "structure"), ("pubmed", "feature"), ("cora", "control-nothing")), figures, strict=True
        )
    ]
    records.append(record(method="Oracle", dataset="cora", shift="structure", auroc=0.99, selection="test"))
    records.append(record(method="Mine", dataset="synthetic", shift="feature", auroc=0.6))  # where no other was run
    page = tmp_path / "leaderboard.html"
    page.write_text(as_leaderboard_page(leaderboard(records)), encoding="utf-8")
    shown = drawn(page)
    body = re.search(r'<tbody id="body">(.*?)</tbody>', shown, re.DOTALL)[1]
    assert re.findall(r'<td class="left">(.*?)</td>', body) == ["Energy", "GRASP", "Mine"]
    assert re.findall(r'<td class="mean">(.*?)</td>', body) == ["85.0", "75.0", "–"]  # whole graphs; none of controls
    assert "70.0‡" in body
    assert "3 methods, 4 settings" in shown


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_sorts_by_a_click(record, tmp_path):
    """Methods by their names, too, from A to Z and back; where figures are not ranked they begin so."""
    records = [record(method=method, auroc=auroc) for method, auroc in (("GRASP", 0.8), ("Energy", 0.7), ("MSP", 0.9))]
    records += [record(method=method, auroc=0.9, selection="test") for method in ("Oracle", "Augur")]
    clicks = """<script>
      const order = () => [...document.querySelectorAll("td.left")].map(cell => cell.textContent).join(" ");
      const sorted = () => document.querySelector("[aria-sort]").ariaSort, seen = [order()];
      const look = () => seen.push(`${order()} ${sorted()}`);
      for (const column of [0, 0, 1, 1]) { document.querySelectorAll("th button")[column].click(); look() }
      const chosen = document.querySelector("[name=selection]"); chosen.value = "test";
      chosen.dispatchEvent(new Event("input", { bubbles: true })); look();
      document.title = seen.join(", ");
    </script>"""
    page = tmp_path / "leaderboard.html"
    page.write_text(as_leaderboard_page(leaderboard(records)).replace("</body>", f"{clicks}</body>"), encoding="utf-8")
    assert re.search("<title>(.*?)</title>", drawn(page))[1].split(", ") == [
        "MSP GRASP Energy",
        "Energy GRASP MSP ascending",
        "MSP GRASP Energy descending",
        "MSP GRASP Energy descending",
        "Energy GRASP MSP ascending",
        "Augur Oracle ascending",
    ]
