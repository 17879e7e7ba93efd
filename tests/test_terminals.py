"""The real command in odd surroundings: one line or silence, never a traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import block_graph
from tests.test_cli import complaint
from tests.test_cli_own import write_graph

import gnnsafe
from gnnsafe import cli

SOURCE = str(Path(gnnsafe.__file__).parents[1])
MAIN = "import sys; from gnnsafe.cli import main; sys.exit(main())"
MANY = (  # commands in one process, which imports torch once
    "import shlex, sys; from gnnsafe.cli import main; sys.exit(any(main(shlex.split(line)) for line in sys.argv[1:]))"
)
NOBODY = "import pwd; pwd.getpwuid = lambda number: {}[number]; "  # the user is in no list, as in many a container


def run(command: str, *, environment: dict[str, str] | None = None, **options) -> tuple[int, str, str]:
    """A line of the shell in which `gnnsafe` is the command."""
    variables = {"PYTHONPATH": SOURCE, "PYTHON": sys.executable, "MAIN": NOBODY + MAIN, "PATH": os.environ["PATH"]}
    shell = ["bash", "-c", f'gnnsafe() {{ "$PYTHON" -c "$MAIN" "$@"; }}\n{command}']
    done = subprocess.run(shell, env={**variables, **(environment or {})}, capture_output=True, timeout=120, **options)
    return done.returncode, done.stdout.decode("latin-1"), done.stderr.decode("latin-1")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    write_graph(folder / "graph", block_graph())
    return folder


def test_a_terminal_without_utf8_and_a_user_without_a_home(files):
    """Train and score in ASCII; the files are UTF-8 all the same."""
    (files / "gräph [red]").symlink_to("graph")
    environment = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C.UTF-8", "MAIN": NOBODY + MANY}  # and no HOME
    lines = ["train 'gräph [red]' --out d --epochs 2", "inspect d", "datasets"]
    code, out, err = run("gnnsafe " + " ".join(f'"{line}"' for line in lines), environment=environment, cwd=files)
    assert (code, err.count("Traceback")) == (0, 0)
    assert out.isascii()
    assert "split: 30 train" in out
    assert r"gr\xe4ph [red]" in out  # told by inspect
    assert "gräph [red]" in (files / "d" / "detector.json").read_text(encoding="utf-8")


def test_readers_that_leave_and_disks_that_are_full():
    assert run("set -o pipefail; gnnsafe --help | true")[2] == ""
    code, out, err = run(
        "gnnsafe methods | head -1; gnnsafe --version > /dev/full; echo $?; gnnsafe --version >&-; echo $?"
    )
    assert (code, out.splitlines()[1:]) == (0, ["2", "0"])
    assert err == "gnnsafe: [Errno 28] No space left on device\n"


def test_the_module_is_the_command():
    code, out, err = run('"$PYTHON" -m gnnsafe --version; "$PYTHON" -m gnnsafe nonsense')
    assert (code, out) == (2, f"gnnsafe {gnnsafe.__version__}\n")
    assert err.startswith("gnnsafe: argument COMMAND: invalid choice: 'nonsense'")


def test_ctrl_c_while_modules_are_imported(tmp_path):
    """The signal comes when torch is being imported, which takes seconds."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-c", MAIN, "methods"],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    for line in process.stderr:
        if "torch" in line:
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=60)
    told = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, out, told) == (130, "", ["gnnsafe: interrupted; no file is half-written"])


class TestNothingThatIsReadIsWrittenOver:
    def test_score(self, files, tmp_path, capsys):
        graph = write_graph(tmp_path / "graph", block_graph())
        assert cli.main(["train", str(graph), "--out", str(tmp_path / "d"), "--epochs", "2"]) == 0
        capsys.readouterr()
        before = (graph / "nodes.parquet").read_bytes()
        (tmp_path / "soft.parquet").symlink_to(graph / "nodes.parquet")
        os.link(graph / "edges.parquet", tmp_path / "hard.parquet")
        for out in (graph / "nodes.parquet", tmp_path / "soft.parquet", tmp_path / "hard.parquet"):
            error = complaint(capsys, "score", str(tmp_path / "d"), str(graph), "--out", str(out))
            assert "'--out' must be no file that is read" in error
        tables = ["--edges", str(graph / "edges.parquet"), "--out", str(graph / "edges.parquet")]
        assert "no file that is read" in complaint(
            capsys, "score", str(tmp_path / "d"), str(graph / "nodes.parquet"), *tables
        )
        assert (graph / "nodes.parquet").read_bytes() == before
        assert cli.main(["score", str(tmp_path / "d"), str(graph), "--out", str(graph / "scores.csv")]) == 0
        assert cli.main(["score", str(tmp_path / "d"), str(graph), "--out", str(graph / "scores.csv")]) == 0


def test_train_and_inspect_say_the_same_accuracy(files, tmp_path, capsys):
    assert cli.main(["train", str(files / "graph"), "--out", str(tmp_path / "d"), "--epochs", "3"]) == 0
    told = re.findall(r"right on ([\d.]+%)", capsys.readouterr().out)
    assert cli.main(["inspect", str(tmp_path / "d")]) == 0
    line = re.search(r"^accuracy +(.*)$", capsys.readouterr().out, re.M)[1]
    assert line == ", ".join(f"{part} {rate}" for part, rate in zip(("train", "val", "test"), told, strict=True))
    accuracy = gnnsafe.load(tmp_path / "d").notes["accuracy"]
    assert accuracy["train"] == pytest.approx(round(accuracy["train"] * 30) / 30, abs=1e-7)  # not rounded before


def test_a_path_that_is_no_utf8(files, tmp_path, capsys):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/gr\xe4ph")
    write_graph(tmp_path / "graph", block_graph()).rename(folder)
    assert r"gnnsafe: a path must be UTF-8 (got '" in complaint(capsys, "datasets", folder)
