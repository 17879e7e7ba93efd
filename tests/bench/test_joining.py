"""Joining the leaderboard, as docs/leaderboard.md tells it, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from gnnsafe import __version__, cli
from gnnsafe.bench import store
from gnnsafe.bench.code import code_version, method_version
from gnnsafe.bench.joining import _drawn, findings
from gnnsafe.bench.own import own_recipes

PAGE = Path(__file__).parents[2] / "docs" / "leaderboard.md"
METHOD = '''
from dataclasses import dataclass

from gnnsafe.methods import Method


@dataclass
class JoiningMargin(Method):
    """Smallest lead of a class over the next: z_2 − z_1."""

    base_reach = 0

    def base_scores(self, outputs):
        best = outputs.logits.topk(2, dim=1).values
        return best[:, 1] - best[:, 0]
'''


def test_the_page_does_what_it_says(tmp_path, monkeypatch, capsys):
    """Its commands, in their order, in ten lines."""
    text = PAGE.read_text(encoding="utf-8")
    told = [line for line in text.splitlines() if re.match(r"\d\. |   ", line) and "    gnnsafe" not in line]
    assert len(told) <= 10
    (tmp_path / "mine.py").write_text(METHOD)
    monkeypatch.chdir(tmp_path)
    commands = [line.split() for line in text.splitlines() if line.startswith("       gnnsafe ")]
    assert [words[1] for words in commands] == ["bench", "leaderboard", "leaderboard"]
    for words in commands:
        assert cli.main(shlex.split(" ".join(words))[1:] + (["--jobs", "1"] if words[1] == "bench" else [])) == 0
    out = capsys.readouterr().out
    assert "These records may join." in out
    assert re.search(r"ok   re-run +synthetic feature, gcn, seed \d, JoiningMargin.*: AUROC differs by", out)
    board = json.loads((tmp_path / "my-results/leaderboard/leaderboard.json").read_text(encoding="utf-8"))
    assert {entry["method"] for entry in board["entries"]} == {"JoiningMargin", "JoiningMargin K=2"}
    assert board["entries"][0]["record"]["seeds"] == [0, 1, 2]
    assert "JoiningMargin" in (tmp_path / "my-results/leaderboard/leaderboard.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    settings = ["--datasets", "synthetic", "--shifts", "feature", "--methods", "msp,energy-ft", "--seeds", "3"]
    assert cli.main(["bench", *settings, "--jobs", "1", "--out", str(folder)]) == 0
    return folder


def found(folder: Path, **changes) -> dict[str, tuple[bool, str]]:
    options = {"root": None, "version": code_version(__version__), **changes}
    return {finding.rule: (finding.holds, finding.text) for finding in findings(folder, **options)}


def rewritten(honest: Path, folder: Path, change) -> Path:
    """The records, each as `change` makes it (None: left out), in a folder of their own."""
    for record in store.read(honest)[0]:
        if (new := change(record)) is not None:
            store.write(folder, [new])
    return folder


def test_honest_records_hold_in_every_rule(honest):
    rules = found(honest)
    assert list(rules) == ["records", "versions", "epochs", "data", "seeds", "selection", "methods", "re-run"]
    assert all(holds for holds, _ in rules.values()), rules


def test_another_version(honest):
    holds, text = found(honest, version="9.9")["versions"]
    assert not holds
    assert "where 9.9 would check it" in text


def changed(**changes):
    from dataclasses import replace

    return lambda record: replace(record, **changes)


def told(record, lr: str) -> dict[str, str]:
    return {**record.chosen, "lr": f"{lr}, as in the published runs"}


@pytest.mark.parametrize(
    ("rule", "change", "text"),
    [
        ("data", changed(data="abc"), "synthetic has fingerprint abc, not "),
        ("data", changed(dataset="nowhere"), "nowhere is not available"),
        ("data", changed(shift="season"), "synthetic has no shift season"),
        ("seeds", lambda r: None if (r.method, r.seed) == ("MSP", 1) else r, "synthetic feature, MSP: seeds 1 of 3"),
        ("seeds", lambda r: None if r.seed else r, "1 seeds, at least 3 are asked for"),
        ("epochs", changed(epochs=20), ": 20, where the page's figures are of 200"),
        ("seeds", changed(seed=10**12), "1000000000000 is none"),
        ("seeds", lambda r: changed(seed=r.seed - 1)(r), "and -1 is none"),
        ("seeds", lambda r: changed(epochs=3)(r) if r.seed == 1 else r, ": seeds 1 of 3 are missing"),
        ("selection", changed(selection="test"), "chosen on test data"),
        ("selection", changed(chosen={"lr": "0.01, as I liked it"}), "lr was chosen in a way that is not known"),
        ("records", changed(error="OSError: no"), "failed: synthetic feature, gcn, seed"),
        ("methods", changed(backbone="nothing"), "'backbone' must be one of gcn, "),
        ("methods", changed(exposure=False), "Energy FT: 'exposure' must be that of the objective (got False)"),
        ("methods", lambda r: changed(lr=0.1, chosen=told(r, "0.1"))(r), "'lr' must be 0.1 as was given or searched"),
        ("methods", lambda r: changed(chosen=told(r, "0.1"))(r), "'lr' must be 0.01 as was given or searched for"),
    ],
)
def test_what_does_not_join(honest, tmp_path, rule, change, text):
    rules = found(rewritten(honest, tmp_path, change))
    assert not rules[rule][0]
    assert text in rules[rule][1]
    assert "re-run" not in rules


def test_records_that_were_written_over(honest, tmp_path):
    for path in honest.glob("*.jsonl"):
        (tmp_path / path.name).write_text(path.read_text().replace('"auroc": 0.', '"auroc": 0.9'))
    assert not found(tmp_path)["records"][0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda r: changed(metrics={**r.metrics, "auroc": 0.999})(r), "AUROC differs by"),
        (lambda r: changed(metrics={**r.metrics, "fpr95": 0.0})(r), "fpr95 differs by"),
        (changed(accuracy=1.0), "accuracy differs by"),
        (changed(within_degrees=1.0), "AUROC among equal degrees differs by"),
        (changed(within_degrees=None), "AUROC among equal degrees differs by"),
        (changed(ood="easy"), "OOD graphs easy, where the data have feature"),
    ],
)
def test_figures_that_cannot_be_had_again(honest, tmp_path, change, text):
    holds, told = found(rewritten(honest, tmp_path, change))["re-run"]
    assert not holds
    assert text in told


@pytest.mark.parametrize("forged", ["MSP", "Energy FT"])
def test_a_forged_method_beside_honest_ones_in_the_drawn_cell(honest, tmp_path, forged):
    def change(record):
        return changed(metrics={**record.metrics, "auroc": 0.999})(record) if record.method == forged else record

    holds, text = found(rewritten(honest, tmp_path, change))["re-run"]
    assert not holds
    assert f"{forged}: AUROC differs by" in text


def test_controls_are_drawn_only_where_there_is_nothing_else(honest):
    records = store.read(honest)[0]
    shifts = {seed: "feature" if seed == 1 else "control-nothing" for seed in range(3)}
    mixed = [changed(shift=shifts[record.seed])(record) for record in records]
    assert {_drawn(mixed)[0].seed for _ in range(20)} == {1}
    cell, runs = _drawn([record for record in mixed if record.seed == 2])
    assert cell.shift == "control-nothing"
    assert sorted(run[0].method for run in runs) == ["Energy FT", "MSP"]


def test_an_ood_graph_that_is_left_out(tmp_path):
    settings = ["--datasets", "synthetic", "--shifts", "domain", "--methods", "msp", "--seeds", "3"]
    assert cli.main(["bench", *settings, "--jobs", "1", "--out", str(tmp_path / "honest")]) == 0
    assert all(holds for holds, _ in found(tmp_path / "honest").values())
    left = rewritten(tmp_path / "honest", tmp_path / "left", lambda r: r if r.ood == "far" else None)
    assert "OOD graphs far, where the data have far, near" in found(left)["re-run"][1]
    once = rewritten(tmp_path / "honest", tmp_path / "once", lambda r: r if (r.ood, r.seed) != ("near", 1) else None)
    assert found(once)["seeds"] == (False, "synthetic domain, MSP on near: seeds 1 of 3 are missing")


def test_a_method_that_nobody_knows(honest, tmp_path):
    holds, text = found(rewritten(honest, tmp_path, changed(method="Mine")))["methods"]
    assert not holds
    assert "no method is called 'Mine'; pass its file, --methods FILE.py" in text


def test_settings_that_are_not_those_of_the_name(honest, tmp_path):
    holds, text = found(rewritten(honest, tmp_path, changed(method_repr="MSP(gamma=3)")))["methods"]
    assert not holds
    assert "is not what it was" in text


@pytest.mark.parametrize("known", [True, False], ids=["edited", "of before methods had versions"])
def test_a_method_that_was_edited_since_whichever_record_is_drawn(honest, tmp_path, known):
    def edited(record):
        versions = {name: value for name, value in record.versions.items() if name != "method"}
        now = {**versions, "method": "edited"} if known else versions
        return changed(versions=now)(record) if record.method == "MSP" else record

    rules = found(rewritten(honest, tmp_path, edited))
    assert "MSP: 'MSP' is not what it was: other code" in rules["methods"][1]
    assert "re-run" not in rules


def test_the_folder_that_is_checked_by_default(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["leaderboard", "check"]) == 2
    assert "'results' must hold records of 'gnnsafe bench'" in capsys.readouterr().err


def test_the_command_says_so_in_one_line(tmp_path, capsys):
    assert cli.main(["leaderboard", "check", str(tmp_path)]) == 2
    assert "must hold records of 'gnnsafe bench'" in capsys.readouterr().err
    assert cli.main(["leaderboard", str(tmp_path)]) == 2
    assert cli.main(["leaderboard", "a", "b"]) == 2
    assert cli.main(["leaderboard", "check", "a", "--out", "b"]) == 2
    assert cli.main(["leaderboard", str(tmp_path), "--methods", "mine.py"]) == 2
    assert "'--methods' must be given after 'check' alone" in capsys.readouterr().err


def test_a_page_has_the_audit_that_is_kept_in_a_folder_of_its_own_alone(record, tmp_path):
    """Where test data chose records of the folder, too, a figure was the mean of both."""
    store.write(tmp_path, [record(auroc=0.7), record(auroc=0.95, selection="test")])
    store.write(tmp_path / "audit", [record(auroc=0.75), record(auroc=0.85, selection="test")])
    assert cli.main(["leaderboard", str(tmp_path)]) == 0
    board = json.loads((tmp_path / "leaderboard" / "leaderboard.json").read_text(encoding="utf-8"))
    found = {(entry["selection"], entry["auroc"]) for entry in board["entries"]}
    assert found == {("validation", 70.0), ("test", 85.0)}


def test_no_method_takes_the_name_of_gnnsafes_own(honest, tmp_path):
    """Its records would stand in that row of the page; 'bench' runs none, but records can be written without it."""
    mine = tmp_path / "own_msp.py"
    mine.write_text(METHOD.replace("JoiningMargin", "MSP"))
    recipe, _ = own_recipes(str(mine))

    def own(record):
        if record.method != "MSP":
            return None
        versions = {**record.versions, "method": method_version(recipe.method)}
        return changed(code=recipe.code, method_repr=repr(recipe.method), versions=versions)(record)

    rules = found(rewritten(honest, tmp_path, own), files=[str(mine)])
    assert "'methods' must have names of their own (got MSP twice)" in rules["methods"][1]
