from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gnnsafe import __version__, cli
from gnnsafe.bench.plan import Cell
from gnnsafe.bench.study import demo_cell
from gnnsafe.cli import demo
from gnnsafe.errors import TrainingError
from gnnsafe.report.document import Document


def complaint(capsys, *arguments: str) -> str:
    """What the command prints on a user's mistake: nothing on stdout, one line on stderr, exit code 2."""
    try:
        code = cli.main(arguments)
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def test_quick_demo(capsys, tmp_path):
    out = tmp_path / "reports" / "page.html"
    assert cli.main(["demo", "--quick", "--out", str(out)]) == 0
    text, _ = capsys.readouterr()
    lines = text.splitlines()
    assert lines[0] == (
        "Cora from the package graphdatascience, a random split drawn from the seed, 20 per class/500/1000. "
        "GCN, 50 epochs, 1 seed."
    )
    assert lines[1].split() == ["shift", "method", "AUROC", "paper", "AUPR", "FPR95", "ID", "acc"]
    assert [line.split()[0] for line in lines[2:20] if line.strip() and not line.startswith(" ")] == [
        "structure",
        "feature",
        "label",
    ]
    figure = r"\s+\d+\.\d"
    for method, paper in (("MSP", 70.9), ("Energy", 71.7), ("GNNSafe", 87.5), (r"GNNSafe\+\+", 90.6)):
        assert re.search(rf"{method}{figure}\s+{paper}{figure * 3}\s*\n", text)
    assert len(re.findall(rf"TwoScale{figure}\s+–{figure * 3}\s*\n", text)) == 3
    assert lines[-1] == f"Report: {out}"
    page = out.read_text(encoding="utf-8")
    assert all(f"{method}, structure shift" in page for method in ("GNNSafe++", "TwoScale"))
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]


def test_out_may_be_a_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "each", lambda function, cells: [("here", [])])
    monkeypatch.setattr(demo, "demo_document", lambda *_, **__: Document("page", [], []))
    assert cli.main(["demo", "--quick", "--out", str(tmp_path)]) == 0
    assert "<h1>page</h1>" in (tmp_path / "gnnsafe-demo.html").read_text()


def test_seeds_and_data_are_passed_on(capsys, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(demo, "each", lambda function, cells: seen.append((function, cells)) or [("here", [])])
    monkeypatch.setattr(demo, "demo_document", lambda *_, **__: Document("page", [], []))
    cli.main(["demo", "--seeds", "2", "--data", "my/data", "--out", str(tmp_path / "page.html")])
    shifts = ("structure", "feature", "label")
    ((function, cells),) = seen
    assert (function.func, function.keywords) == (demo_cell, {"root": "my/data"})
    assert cells == [Cell("cora", shift, seed, epochs=200) for shift in shifts for seed in (0, 1)]
    assert capsys.readouterr().out.startswith("Cora from here. GCN, 200 epochs, mean ± std of 2 seeds.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "gnnsafe: the following arguments are required: COMMAND; see gnnsafe --help"),
        (["dmeo"], "invalid choice: 'dmeo'"),
        (
            ["demo", "--seeds", "0"],
            r"argument --seeds: must be a whole number >= 1 \(got '0'\); see gnnsafe demo --help",
        ),
        (["demo", "--seeds", "two"], r"must be a whole number >= 1 \(got 'two'\)"),
        (["demo", "--sneeds", "2"], "unrecognized arguments: --sneeds 2"),
        (["demo", "--data", "/no/where"], r"gnnsafe: 'root' must be a folder \(got '/no/where'\); see --data"),
        (["demo", "--out", "/dev/null/page.html"], r"gnnsafe: '--out' must be a file that can be written \(got "),
    ],
)
def test_a_mistake_costs_one_line(capsys, arguments, message):
    assert re.search(message, complaint(capsys, *arguments))


def test_errors_while_running_are_one_line_too(capsys, monkeypatch, tmp_path):
    def diverge(*_, **__):
        raise TrainingError("training diverged")

    monkeypatch.setattr(demo, "each", diverge)
    assert complaint(capsys, "demo", "--out", str(tmp_path / "p.html")) == "gnnsafe: training diverged\n"
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_nothing_behind(capsys, monkeypatch, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "each", interrupt)
    assert cli.main(["demo", "--out", str(tmp_path / "p.html")]) == 130
    assert capsys.readouterr().err.endswith("gnnsafe: interrupted; no file is half-written\n")
    assert not list(tmp_path.iterdir())


def test_ctrl_c_while_processes_work_prints_one_line(tmp_path):
    """The real thing: a signal to the whole group, as a terminal sends it, while workers are starting."""
    script = Path(sys.executable).with_name("gnnsafe")
    process = subprocess.Popen(
        [script, "demo", "--out", str(tmp_path / "p.html")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # else ignored under nohup or CI
    )
    time.sleep(6)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "gnnsafe: interrupted; no file is half-written\n")
    assert not list(tmp_path.iterdir())


def test_a_path_is_not_markup(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "each", lambda function, cells: [("[old]/:bug:", [])])
    monkeypatch.setattr(demo, "demo_document", lambda *_, **__: Document("page", [], []))
    assert cli.main(["demo", "--out", str(tmp_path / "[/x].html")]) == 0
    text = capsys.readouterr().out
    assert "Cora from [old]/:bug:." in text
    assert text.endswith("[/x].html\n")


def test_help_teaches(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["demo", "--help"])
    text = capsys.readouterr().out
    for word in ("--data", "--seeds", "--out", "--quick", "GNNSAFE_DATA", "default: 3; quick: 1", "gnnsafe-demo.html"):
        assert word in text


def test_the_console_script_and_version():
    script = [sys.executable, "-c", "from gnnsafe.cli import main; raise SystemExit(main())", "--version"]
    result = subprocess.run(script, capture_output=True, text=True, check=True)
    assert result.stdout == f"gnnsafe {__version__}\n"


def test_help_and_names_need_no_torch():
    """`gnnsafe --help` answers at once, and every command that it lists is a module that describes itself."""
    script = """
import sys
from gnnsafe.cli import main
try:
    main(["--help"])
except SystemExit:
    raise SystemExit(any(name in sys.modules for name in ("torch", "numpy", "rich")))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for name in cli.COMMANDS:
        assert re.search(rf"\n  {name}\s", result.stdout)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_teaches(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: gnnsafe {command} [-h]")
    assert len(text.splitlines()) > 5
