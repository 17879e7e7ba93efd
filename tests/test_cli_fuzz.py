"""Every command with odd arguments, drawn from a seed: exit code 0, 1 or 2, one line on stderr, no traceback."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.conftest import block_graph
from tests.test_cli_own import write_graph

from gnnsafe import cli

SECONDS = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A graph, a detector, and files that are neither."""
    folder = tmp_path_factory.mktemp("fuzz")
    write_graph(folder / "graph", block_graph())
    assert cli.main(["train", str(folder / "graph"), "--out", str(folder / "detector"), "--epochs", "1"]) == 0
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "empty").mkdir()
    (folder / "text.csv").write_text("id,\x1b[31m\n=1,2\n")
    (folder / "nested.toml").write_text("a = " + "[" * 5000)
    (folder / "nested.json").write_text("[" * 5000)
    (folder / "exits.py").write_text("import sys\nsys.exit(0)\n")
    return folder


VALUES = [
    "", "-1", "0", "1", "2", str(2**64), "9" * 5000, "1e309", "nan", "٣", "[/red]", "\x1b[31m", "\ud800", "a" * 5000,
    "x,,y",
    "cora", "synthetic", "gcn", "msp", "n3", "{folder}", "{folder}/graph", "{folder}/detector", "{folder}/loop",
    "{folder}/loop/x.csv", "{folder}/empty", "{folder}/text.csv", "{folder}/nested.toml", "{folder}/nested.json",
    "{folder}/exits.py", "{folder}/nowhere.parquet", "{folder}/new/s.csv", "{folder}/why.png",
    "/dev/null", "/proc/self/mem",
]  # fmt: skip
OPTIONS = {
    "demo": ["--data", "--seeds", "--out"],
    "datasets": ["--data", "--edges", "--undirected"],
    "methods": ["--all"],
    "train": ["--out", "--exposure", "--epochs", "--seed", "--method", "--objective", "--backbone", "--edges"],
    "score": ["--out", "--fdr", "--false-alarm", "--edges", "--drop-unknown-edges"],
    "explain": ["--node", "--out", "--edges"],
    "inspect": ["--detector"],
    "bench": ["--datasets", "--shifts", "--methods", "--seeds", "--plan", "--out", "--figure", "--jobs", "--data"],
    "report": ["--protocol", "--format", "--out"],
}
LONG = {"demo", "bench"}  # are given a mistake: they may run for long


def test_every_command(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    draw, end, runs = random.Random(0), time.monotonic() + SECONDS, 0
    assert {*OPTIONS} <= {*cli.COMMANDS}
    while time.monotonic() < end and runs < 400:
        command = draw.choice([*OPTIONS])
        words = [draw.choice(VALUES).format(folder=folder) for _ in range(draw.choice([0, 1, 1, 2, 2, 2]))]
        for option in draw.sample(OPTIONS[command], draw.randint(0, len(OPTIONS[command]))):
            words += [option, draw.choice(VALUES).format(folder=folder)]
        words += ["--epochs", "1"] if command == "train" and "--epochs" not in words else []
        words += ["--seeds", "none"] if command in LONG else []
        try:
            code = cli.main([command, *words])
        except SystemExit as stop:
            code = stop.code
        except Exception as error:
            raise AssertionError([command, *words]) from error
        err = capsys.readouterr().err
        assert code in (0, 1, 2), words
        assert code != 2 or err.count("\n") == 1, (words, err)
        assert "Traceback" not in err
        assert "\x1b" not in err
        runs += 1
    assert runs > 50
