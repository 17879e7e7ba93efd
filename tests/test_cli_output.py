"""What every command says alike: text or JSON, how much of it, and how it ends."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from tests.conftest import block_graph
from tests.test_cli_own import write_graph

import gnnsafe
from gnnsafe import cli, installation
from gnnsafe.bench.summary import SeedSummary
from gnnsafe.cli.output import Answer, progress_bar
from gnnsafe.cli.parsing import COMMANDS, GROUPS, WITHOUT_FIGURES, command_parser
from gnnsafe.errors import InputError
from gnnsafe.methods import METHODS
from gnnsafe.report.demo import demo_figures
from gnnsafe.training import OBJECTIVES

ROOT = Path(__file__).parents[1]
SOURCE = str(Path(gnnsafe.__file__).parents[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A graph, a detector trained on it, its logits, and the records of a small study."""
    folder = tmp_path_factory.mktemp("output")
    graph = write_graph(folder / "graph", block_graph())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cli.main(["train", str(graph), "--out", str(folder / "d"), "--epochs", "20", "--method", "energy"]) == 0
    detector, data = gnnsafe.load(folder / "d"), gnnsafe.read_graph(graph)
    logits = detector.outputs(data).logits
    parquet.write_table(pa.table({"id": data.node_id, "logits": logits.tolist()}), folder / "logits.parquet")
    study = ["bench", "--datasets", "synthetic", "--shifts", "label", "--methods", "msp,energy", "--epochs", "2"]
    settings = ["--protocol", "paper", "--seeds", "1", "--jobs", "1", "--out", str(folder / "results")]
    assert cli.main([*study, *settings, "--quiet"]) == 0
    return folder


@pytest.fixture
def call(folder, capsys, monkeypatch):
    """A command in that folder: its exit code, what it prints, and what it tells beside."""

    def run(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.chdir(folder)
        code = cli.main(shlex.split(line))
        return code, *capsys.readouterr()

    return run


CALLS = {
    "datasets": "datasets graph",
    "methods": "methods",
    "train": "train graph --out again --epochs 2",
    "score": "score d graph --out scores.csv",
    "score-logits": "score-logits logits.parquet graph/edges.parquet --detector d --out parts",
    "explain": "explain d graph --node n3",
    "check": "check d graph",
    "diagnose": "diagnose d graph --draws 1",
    "refit": "refit d graph --method msp --out other",
    "inspect": "inspect d",
    "monitor": "monitor d graph --history history.db",
    "bench": "bench --datasets synthetic --shifts label --methods msp,energy --epochs 2 --protocol paper --seeds 1 "
    "--out results",
    "report": "report results --format csv",
    "leaderboard": "leaderboard results",
    "doctor": "doctor",
}


def figures(call, name: str) -> dict:
    code, out, _ = call(f"{CALLS[name]} --json")
    assert code in (0, 1)
    return json.loads(out, parse_constant=pytest.fail)  # NaN and Infinity are no JSON


class TestFigures:
    def test_every_command_with_figures_is_here(self):
        assert {*CALLS} | {"demo"} == {*COMMANDS} - {*WITHOUT_FIGURES}

    @pytest.mark.parametrize("name", CALLS)
    def test_json_is_all_that_is_printed_and_quiet_prints_nothing(self, call, name):
        assert figures(call, name)
        assert call(f"{CALLS[name]} --quiet")[1] == ""

    def test_of_a_graph(self, call):
        data = block_graph()
        found = figures(call, "datasets")
        assert (found["nodes"], found["features"], found["classes"]) == (120, 8, 3)
        assert (found["entries"], found["split"]) == (data.num_edges, {"train": 30, "val": 40, "test": 50})

    def test_of_data_sets(self, call):
        known = {one["name"]: one for one in json.loads(call("datasets --json")[1])["datasets"]}
        assert (known["cora"]["nodes"], known["cora"]["edges"], known["cora"]["classes"]) == (2708, 10556, 7)
        assert known["synthetic"]["available"] is True
        assert {"structure", "label"} <= {*known["cora"]["shifts"]}

    def test_of_methods(self, call):
        found = figures(call, "methods")
        assert [one["name"] for one in found["methods"]] == list(METHODS)
        first = {one["name"]: one["what"] for one in found["methods"]}
        assert first["energy"] == METHODS["energy"].__doc__.splitlines()[0]

    def test_of_training(self, call, folder):
        found = figures(call, "train")
        rates = gnnsafe.load(folder / "again").notes["accuracy"]
        assert {part: rate["accuracy"] for part, rate in found["rates"].items()} == rates
        assert (found["epochs"], found["backbone"], found["calibration_nodes"]) == (2, "gcn", 40)
        assert found["files"] == [{"kind": "Detector", "path": str(folder / "again")}]
        assert any("still learning" in warning for warning in found["warnings"])
        assert found["check"]["nodes"] == 50

    def test_of_decisions_in_memory_and_by_an_engine(self, call, folder):
        (one,) = figures(call, "score")["graphs"]
        flags = gnnsafe.load(folder / "d").predict(gnnsafe.read_graph(folder / "graph"), false_alarm=0.05)
        assert (one["nodes"], one["flagged"], one["false_alarm"]) == (120, int(flags.sum()), 0.05)
        assert one["expected_false_alarms"] == pytest.approx(6.0)
        assert sum(bar["nodes"] for bar in one["histogram"]) == 120
        assert sum(bar["flagged"] for bar in one["histogram"]) == one["flagged"]
        write_graph(folder / "new", block_graph(seed=1))  # none of whose nodes is compared with its own last digit
        (other,) = json.loads(call("score d new --out new.csv --json")[1])["graphs"]
        code, out, _ = call("score d new --engine duckdb --out rows --json")
        (stored,) = json.loads(out)["graphs"]
        assert (code, stored.keys()) == (0, one.keys())
        assert (stored["nodes"], stored["flagged"]) == (120, other["flagged"])
        assert stored["table"] == str(folder / "rows")
        code, out, _ = call(f"{CALLS['score-logits']}/new --json")
        by_engine = json.loads(out)
        assert {name: by_engine[name] for name in ("nodes", "flagged", "expected_false_alarms")} == {
            name: one[name] for name in ("nodes", "flagged", "expected_false_alarms")
        }
        assert by_engine["files"] == [{"kind": "Parts", "path": str(folder / "parts" / "new")}]

    def test_of_a_saved_detector(self, call, folder):
        found = figures(call, "inspect")
        calibration = gnnsafe.load(folder / "d").calibration_
        assert found["calibration"]["nodes"] == 40
        assert found["calibration"]["thresholds"]["0.05"] == pytest.approx(float(calibration.thresholds(0.05)))
        assert found["calibration"]["thresholds"]["0.01"] is None  # 40 nodes flag none there: infinite
        assert (found["class_names"], found["num_features"]) == (["blue", "green", "red"], 8)

    def test_of_one_node(self, call, folder):
        score = gnnsafe.load(folder / "d").score(gnnsafe.read_graph(folder / "graph"))[3]
        assert figures(call, "explain")["score"] == pytest.approx(float(score))

    def test_of_a_study(self, call, folder):
        (table,) = figures(call, "bench")["order"]
        assert (table["protocol"], table["backbone"]) == ("paper", "gcn")
        assert {one["method"] for one in table["methods"]} == {"MSP", "Energy"}
        assert [one["rank"] for one in table["methods"]] == sorted(one["rank"] for one in table["methods"])
        assert figures(call, "report")["order"] == [table]
        assert figures(call, "leaderboard")["entries"] == 2

    def test_of_the_demo(self):
        summary = SeedSummary("cora", "structure", "Energy", 1, {"auroc": (81.5, None)}, {}, {})
        (one,) = demo_figures([summary])
        assert one == {"shift": "structure", "method": "Energy", "auroc": {"mean": 81.5, "std": None},
                       "paper_auroc": 71.73}  # fmt: skip

    def test_what_json_has_no_number_for(self):
        held = {"nan": float("nan"), "numbers": torch.tensor([1.0, float("inf")]), 5: (Path("a"), True)}
        answer = Answer([], held, [("Table", "s3://far/away")])
        assert json.loads(answer.as_json()) == {
            "nan": None,
            "numbers": [1.0, None],
            "5": ["a", True],
            "files": [{"kind": "Table", "path": "s3://far/away"}],
        }


class TestHowMuch:
    def test_quiet_writes_files_and_still_warns(self, call, folder):
        code, out, err = call("score d graph --out quiet.csv --false-alarm 0.01 --quiet")
        assert (code, out) == (0, "")
        assert err.startswith("gnnsafe: 40 calibration nodes are too few")
        assert (folder / "quiet.csv").is_file()

    def test_notes_are_told_unless_quiet(self, call):
        assert "1 cell, 1 of them finished before" in call(CALLS["bench"])[2]
        assert call(f"{CALLS['bench']} --quiet")[2] == ""

    def test_verbose_tells_each_step(self, call, folder):
        _, out, err = call("train graph --out loud --epochs 2 --verbose")
        told = re.findall(r"^ +\d+\.\d\d s (gnnsafe\.\S+): (.*)$", err, re.M)
        assert {"gnnsafe.datasets.reading", "gnnsafe.training.loop", "gnnsafe.detector.scoring", "gnnsafe.files"} <= {
            name for name, _ in told
        }
        assert any("120 nodes" in text for _, text in told)
        assert "gnnsafe.training" not in out
        assert logging.getLogger("gnnsafe").handlers == []
        assert "gnnsafe.training" not in call("train graph --out loud --epochs 2")[2]

    def test_verbose_says_where_an_error_comes_from(self, call):
        code, _, err = call("inspect graph --verbose")
        assert code == 2
        assert "Traceback" in err
        assert err.splitlines()[-1].startswith("gnnsafe: ")
        assert call("inspect graph")[2].count("\n") == 1

    def test_quiet_and_verbose_exclude_each_other(self, capsys):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["methods", "--quiet", "--verbose"])
        assert "not allowed with argument" in capsys.readouterr().err

    def test_bars_are_drawn_on_terminals_that_are_not_told_to_be_quiet(self, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes anything for a terminal
        assert not progress_bar().disable
        bars = logging.getLogger("gnnsafe.progress")
        bars.setLevel(logging.ERROR)
        try:
            assert progress_bar().disable
        finally:
            bars.setLevel(logging.NOTSET)

    def test_what_pyg_warns_of_at_every_start_is_left_out(self, call, monkeypatch):
        def noisy(root: str | None) -> list[installation.Finding]:
            warnings.warn("`torch.jit.script` is deprecated.", FutureWarning, stacklevel=1)
            return installation.findings(root)

        monkeypatch.setattr("gnnsafe.cli.doctor.findings", noisy)
        assert call("doctor")[2] == ""

    def test_no_color(self, call, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")
        colour = re.compile("\x1b\\[[0-9;]*3[0-7]m")
        assert colour.search(call("score d graph --out s.csv")[1])
        monkeypatch.setenv("NO_COLOR", "1")
        assert not colour.search(call("score d graph --out s.csv")[1])


class TestHowItEnds:
    def test_a_defect_has_a_code_of_its_own(self, capsys, monkeypatch):
        def broken(*_: object) -> None:
            raise ZeroDivisionError("by nobody's mistake")

        monkeypatch.setattr(installation, "_versions", broken)
        assert cli.main(["doctor"]) == 70
        err = capsys.readouterr().err
        assert "ZeroDivisionError" in err
        assert gnnsafe.__version__ in err.splitlines()[-1]

    def test_nobody_reads_on(self):
        command = f'"{sys.executable}" -m gnnsafe --help | true; exit ${{PIPESTATUS[0]}}'
        environment = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1"}
        codes = {subprocess.run(["bash", "-c", command], env=environment, check=False).returncode for _ in range(3)}
        assert codes <= {0, 141}  # 0 where all was written before the reader left

    @pytest.mark.parametrize("command", ["datasets", "datasets --json", "completion bash"])
    def test_an_answer_that_nobody_reads_is_no_answer_of_no(self, command):
        reader, writer = os.pipe()
        os.close(reader)
        words = [sys.executable, "-W", "ignore", "-m", "gnnsafe", *command.split()]
        environment = {**os.environ, "PYTHONPATH": SOURCE}
        done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, env=environment, text=True, check=False)
        os.close(writer)
        assert (done.returncode, done.stderr) == (141, "")

    def test_the_page_has_every_code(self):
        table = (ROOT / "docs" / "files.md").read_text(encoding="utf-8").partition("### Exit codes")[2]
        named = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)}
        assert named == {0, 1, cli.MISTAKE, 3, cli.DEFECT, cli.INTERRUPTED, cli.UNREAD}


class TestHelp:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_examples_are_commands(self, name):
        parser = command_parser(name)
        shown = re.findall(r"^  gnnsafe (\S+)(.*)$", parser.epilog, re.M)
        assert shown
        for command, arguments in shown:
            assert command == name
            parser.parse_args(shlex.split(arguments.partition(" > ")[0]))

    def test_examples_keep_their_lines_and_paragraphs_are_filled(self, monkeypatch):
        monkeypatch.setenv("COLUMNS", "60")
        lines = command_parser("check").format_help().splitlines()
        assert "  gnnsafe check detector/ graph/" in lines
        assert all(len(line) <= 60 for line in lines)

    def test_what_may_be_chosen_stands_whole_in_the_help(self, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        help_text = command_parser("train").format_help()
        usage, _, rest = help_text.partition("\n\n")
        assert usage.count("\n") < 10  # long lists stand with their option alone
        for name in (*METHODS, *OBJECTIVES):
            assert re.search(rf"(?<![\w-]){name}(?![\w-])", rest), name

    def test_commands_are_in_their_groups(self, capsys):
        with pytest.raises(SystemExit, match="0"):
            cli.main(["--help"])
        text = capsys.readouterr().out
        for title, commands in GROUPS.items():
            group = re.search(rf"^{title}:\n((?:  .*\n)+)", text, re.M)[1]
            assert re.findall(r"^  (\S+)", group, re.M) == list(commands)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sco", {"score", "score-logits"}),
        ("train --back", {"--backbone"}),
        ("train --objective energy-", {"energy-margin"}),
        ("completion f", {"fish"}),
        ("score fi", {"file.txt"}),
        ("train --out fi", {"file.txt"}),
    ],
)
def test_completion_by_bash(typed, offered, script, tmp_path):
    (tmp_path / "file.txt").touch()
    words = shlex.split(typed)
    line = f"COMP_WORDS=(gnnsafe {typed}); COMP_CWORD={len(words)}"
    ask = f'source "{script}"; {line}; _shtab_gnnsafe; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} == offered


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "gnnsafe.bash"
    command = [sys.executable, "-W", "ignore", "-m", "gnnsafe", "completion", "bash"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])}
    path.write_bytes(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    return path


class TestDoctor:
    def found(self, about: str, root: str | None = None) -> installation.Finding:
        (one,) = [one for one in installation.findings(root) if one.about == about]
        return one

    def test_says_what_is_here(self, call):
        code, out, _ = call("doctor")
        found = installation.findings()
        assert code == (1 if any(one.state == "wrong" for one in found) else 0)
        for one in found:
            assert one.about == "memory" or one.text in out  # which others take meanwhile
            assert one.remedy in out
        assert {one.about for one in found} >= {"torch", "threads", "devices", "report", "spark", "data root", "cache"}

    def test_an_extra_that_is_missing_and_one_that_is_too_old(self, monkeypatch):
        lines = ["numpy>=1.26", "altair>=5.5; extra == 'report'", "pyarrow>=17; extra == 'tables'"]
        versions = {"numpy": "1.25.9", "altair": "5.10.1"}
        monkeypatch.setattr(installation, "requires", lambda _: lines)
        monkeypatch.setattr(installation, "_version", versions.get)
        numpy, report, tables = (self.found(about) for about in ("numpy", "report", "tables"))
        assert (numpy.state, numpy.remedy) == ("wrong", "pip install 'numpy>=1.26'")
        assert "1.25.9" in numpy.text
        assert report.state == "ok"
        assert (tables.state, tables.remedy) == ("missing", "pip install 'gnnsafe[tables]'")
        assert "pyarrow" in tables.text

    def test_spark_needs_java(self, monkeypatch, tmp_path):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert installation._java().state == "wrong"
        assert "Java 17" in installation._java().remedy
        (tmp_path / "bin").mkdir()
        for version, state in (("1.8.0_392", "wrong"), ("11.0.2", "wrong"), ("17.0.9", "ok"), ("21", "ok")):
            java = tmp_path / "bin" / "java"
            java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
            java.chmod(0o755)
            assert installation._java().state == state, version

    def test_a_data_root_that_is_none(self, monkeypatch, call):
        monkeypatch.setenv("GNNSAFE_DATA", "/no/where")
        one = self.found("data root")
        assert (one.state, "/no/where" in one.text, "GNNSAFE_DATA" in one.remedy) == ("wrong", True, True)
        code, out, _ = call("doctor --json")
        assert code == 1
        assert json.loads(out)["wrong"] >= 1

    def test_a_torch_that_cannot_be_imported_is_told(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch", None)
        one = next(one for one in installation._machine())
        assert (one.about, one.state) == ("torch", "wrong")
        assert "https://pytorch.org" in one.remedy

    def test_a_cache_that_cannot_be_written_costs_only_time(self, monkeypatch):
        monkeypatch.setattr("gnnsafe.datasets.cache.cache_folder", lambda: None)
        one = self.found("cache")
        assert (one.state, "XDG_CACHE_HOME" in one.remedy) == ("missing", True)


def test_mistakes_under_json_are_one_line_too(call):
    code, out, err = call("score d nowhere --out s.csv --json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    with pytest.raises(InputError, match="nowhere"):
        gnnsafe.read_graph("nowhere")
