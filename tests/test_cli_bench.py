from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.cells import cell_len

from gnnsafe import cli
from gnnsafe.bench import study
from gnnsafe.bench.code import code_version
from gnnsafe.bench.plan import Cell
from gnnsafe.bench.store import read, write
from gnnsafe.cli import bench as module
from gnnsafe.methods import METHODS, MSP

TINY = ["bench", "--datasets", "synthetic", "--shifts", "label,domain", "--methods", "msp,gnnsafe++", "--epochs", "2",
        "--protocol", "paper"]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The records of the tiny plan, run whole in one process."""
    folder = tmp_path_factory.mktemp("finished")
    assert cli.main([*TINY, "--seeds", "2", "--jobs", "1", "--out", str(folder)]) == 0
    return folder


def figures(folder) -> list[tuple]:
    """All of the records that does not differ from run to run, in one order."""
    records, broken = read(folder)
    assert broken == 0
    rows = [{k: v for k, v in asdict(r).items() if k not in ("created", "seconds", "memory")} for r in records]
    return sorted(tuple((key, repr(value)) for key, value in row.items()) for row in rows)


def reported(folder, capsys) -> str:
    """The report, except for how long things took."""
    capsys.readouterr()
    assert cli.main(["report", str(folder), "--format", "markdown"]) == 0
    return re.sub(r"\d+ minutes of training", "", capsys.readouterr().out.partition("## Table 8")[0])


def test_a_plan_is_run_kept_and_ordered(finished, capsys, monkeypatch, tmp_path):
    records, _ = read(finished)
    assert len(records) == 2 * (1 + 2) * 2  # seeds × graphs × recipes
    monkeypatch.setattr(study, "attempts", None)  # nothing is run again
    assert cli.main([*TINY, "--seeds", "2", "--out", str(finished)]) == 0
    out, err = capsys.readouterr()
    assert err == f"4 cells, 4 of them finished before; records are kept in {finished}\n"
    assert out.startswith("AUROC in percent, mean of 2 seeds; paper protocol, gcn, 2 epochs; rank: mean of the ranks")
    assert re.search(r"^1 \S+ +\d+\.\d", out, re.M)
    assert "GNNSafe++*" in out
    assert cli.main(["report", str(finished), "--out", str(tmp_path)]) == 0
    table = out.replace(f"Tables and charts: gnnsafe report {finished}\n", "")
    told = dict(re.findall(r"^(\w+): (/.*)$", capsys.readouterr().out.removeprefix(table), re.M))
    assert list(told) == ["page", "Markdown", "LaTeX", "CSV", "charts"]
    assert all(Path(path).exists() and Path(path).parent == tmp_path for path in told.values())


def test_killed_at_any_moment_it_goes_on_where_it_was(finished, tmp_path, capsys):
    """Two processes, killed with their parent as soon as there is a record; then one process goes on."""
    script = "from gnnsafe.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", script, *TINY, "--seeds", "2", "--jobs", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob("*.jsonl")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # workers end with their parent
    before = {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    assert 1 <= len(before) < 4
    assert cli.main([*TINY, "--seeds", "2", "--jobs", "1", "--out", str(tmp_path)]) == 0
    assert f"4 cells, {len(before)} of them finished before" in capsys.readouterr().err
    assert all(path.read_bytes() == content for path, content in before.items())
    assert len(list(tmp_path.glob("*.jsonl"))) == 4
    assert figures(tmp_path) == figures(finished)
    assert reported(tmp_path, capsys) == reported(finished, capsys)


def test_new_methods_run_alone_in_finished_cells(finished, tmp_path, capsys, monkeypatch):
    for path in finished.glob("*-0-*.jsonl"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    trained = []
    real = study.attempts
    monkeypatch.setattr(study, "attempts", lambda b, recipes, epochs, **_: trained.append([r.name for r in recipes])
                        or real(b, recipes, epochs=epochs))  # fmt: skip
    more = [text.replace("msp,", "msp,energy,") for text in TINY]
    assert cli.main([*more, "--seeds", "1", "--out", str(tmp_path)]) == 0
    assert trained == [["Energy"], ["Energy"]]
    assert re.search(r"^\d Energy≈? ", capsys.readouterr().out, re.M)
    assert len(read(tmp_path)[0]) == 3 * 3


@pytest.mark.usefixtures("registries")
def test_a_failed_run_is_told_and_tried_again(tmp_path, capsys):
    @METHODS.register("sometimes")
    class Sometimes(MSP):
        """Fails until it is mended."""

        mended = False

        def base_scores(self, outputs):
            if not self.mended and "mask" in outputs.graph.data and outputs.graph.mask.all():  # in a domain of its own
                raise RuntimeError("not today")
            return super().base_scores(outputs)

    command = [text.replace("msp,gnnsafe++", "msp,sometimes") for text in TINY]
    command += ["--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]
    assert cli.main(command) == 1
    out, err = capsys.readouterr()
    assert re.search(r"^– Sometimes† +–", out, re.M)
    assert re.search(r"^1 MSP +\d", out, re.M)
    assert "gnnsafe: failed: synthetic domain, gcn, seed 0, Sometimes: RuntimeError: not today\n" in err
    assert err.endswith("runs failed; 'gnnsafe bench' tries them again\n")
    assert cli.main(["report", str(tmp_path)]) == 1
    capsys.readouterr()
    Sometimes.mended = True
    assert cli.main(command) == 0
    out, err = capsys.readouterr()
    assert "†" not in out
    assert "gnnsafe: " not in err


def test_another_version_and_other_data_are_never_mixed_in(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "__version__", "9.9")
    write(tmp_path, read(finished)[0])
    command = [*TINY, "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    out, err = capsys.readouterr()
    assert "2 cells, 0 of them finished before" in err
    assert err.endswith(f"gnnsafe: 12 records of gnnsafe {code_version(cli.__version__)} are left out\n")
    assert "mean of 1 seed;" in out
    monkeypatch.setattr(study, "fingerprint", lambda *_: "other")
    (tmp_path / "torn.jsonl").write_text('{"dataset": "syn')
    assert cli.main(command) == 0
    err = capsys.readouterr().err
    assert "0 of them finished before" in err
    assert "gnnsafe: 6 records of other data for synthetic are left out\n" in err
    assert f"gnnsafe: 1 lines in {tmp_path} are damaged or no records and are left out\n" in err


def test_a_plan_file_which_options_override(tmp_path, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(module, "tasks", lambda cells, **_: seen.extend(cells) or [])
    path = tmp_path / "plan.toml"
    path.write_text('datasets = ["synthetic"]\nseeds = 3\nepochs = 7\n')
    assert cli.main(["bench", "--plan", str(path), "--seeds", "1", "--out", str(tmp_path)]) == 0
    assert {(cell.dataset, cell.seed, cell.epochs) for cell, _ in seen} == {("synthetic", 0, 7)}


def test_ctrl_c_says_what_is_kept(finished, tmp_path, capsys, monkeypatch):
    def interrupt(*_, **__):
        write(tmp_path, [r for r in read(finished)[0] if (r.shift, r.seed) == ("label", 0)])
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "each", interrupt)
    assert cli.main([*TINY, "--seeds", "2", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.endswith(
        f"gnnsafe: interrupted; 1 of 4 cells are kept in {tmp_path}; the same command goes on from there\n"
    )


def test_ctrl_c_before_the_first_cell_says_where_all_is_kept(tmp_path, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gnnsafe.cli.bench._run", interrupt)
    assert cli.main([*TINY, "--out", str(tmp_path)]) == 130
    assert f"interrupted; what is finished is kept in {tmp_path}; the same command" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "--datasets", "coar"], "gnnsafe: 'datasets' must be one of .* did you mean 'cora'"),
        (["bench", "--datasets", ","], "argument --datasets: must be names separated by commas"),
        (["bench", "--datasets", "cora", "--methods", "mps"], "'methods' must be one of .* did you mean 'msp'"),
        (["bench", "--datasets", "cora", "--shifts", "domain"], "'shifts' must be one of structure, "),
        (["bench", "--seeds", "0"], r"argument --seeds: must be a whole number >= 1 \(got '0'\)"),
        (["bench", "--protocol", "strict"], "argument --protocol: invalid choice: 'strict'"),
        (["bench", "--plan", "/no/where.toml"], "No such file or directory: '/no/where.toml'"),
        (["bench", "--datasets", "cora", "--data", "/no/where"], r"'root' must be a folder \(got '/no/where'\)"),
        (["bench", "--datasets", "synthetic", "--out", "/dev/null"], "'--out' must be a folder that can be written to"),
        (["report", "/no/where"], r"gnnsafe: '/no/where' must hold records of 'gnnsafe bench' \(got none\)"),
    ],
)
def test_a_mistake_costs_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main(arguments)
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(message, err)
    assert not list(tmp_path.glob("results/*"))


def test_a_protocol_that_was_not_run(finished, capsys):
    assert cli.main(["report", str(finished), "--protocol", "rigorous"]) == 2
    assert "must hold records of 'gnnsafe bench' of protocol rigorous (got none)" in capsys.readouterr().err


def test_each_protocol_has_a_table(tmp_path, capsys):
    command = ["bench", "--datasets", "cora", "--shifts", "label,rewire", "--methods", "msp", "--epochs", "1"]
    assert cli.main([*command, "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    leads = [line for line in out.splitlines() if line.startswith("AUROC")]
    assert ["paper" in lead for lead in leads] == [True, False]
    assert [line.split()[-1] for line in out.splitlines() if line.startswith("# method")] == ["L", "rewire"]
    assert "left out" not in err
    tables = out.replace(f"Tables and charts: gnnsafe report {tmp_path}\n", "")
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(tables)
    assert cli.main(["report", str(tmp_path), "--protocol", "rigorous"]) == 0
    alone = capsys.readouterr().out.partition("page:")[0]
    assert "rigorous" in alone
    assert tables.endswith(alone)
    paper = [text.replace("label,rewire", "label") for text in command]
    assert cli.main([*paper, "--seeds", "1", "--out", str(tmp_path)]) == 0
    assert "rigorous" not in capsys.readouterr().out


def test_help_teaches(capsys):
    for command, words in {
        "bench": ("--plan", "default: the paper's that are available", "goes on where it was", "for all else", ".py is",
                  "--search", "never by test data"),
        "report": ("without running anything", "default: results"),
        "methods": ("post-hoc", "trivial"),
    }.items():  # fmt: skip
        with pytest.raises(SystemExit, match="0"):
            cli.main([command, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        for word in words:
            assert word in text


def test_a_data_set_without_the_shift_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "each", lambda *_, **__: iter(()))
    monkeypatch.setattr(study, "data_fingerprint", lambda *_: "")
    assert cli.main(["bench", "--datasets", "cora,twitch", "--shifts", "label", "--out", str(tmp_path)]) == 0
    assert "gnnsafe: twitch is left out, it has none of the shifts label" in capsys.readouterr().err


def test_the_list_of_methods(capsys):
    assert cli.main(["methods"]) == 0
    out = capsys.readouterr().out
    assert max(map(cell_len, out.splitlines())) <= 80
    for name in METHODS:
        assert re.search(rf"^{name} ", out, re.M)


@pytest.mark.parametrize(
    ("kind", "start"),
    [("markdown", "# gnnsafe bench"), ("latex", "% gnnsafe bench"), ("csv", "table,protocol,backbone,"),
     ("html", "<!doctype html>"), ("terminal", "2 methods in 2 settings, up to 2 seeds; 12 records")],
)  # fmt: skip
def test_a_report_is_printed_in_every_format(finished, capsys, kind, start):
    before = set(finished.iterdir())
    assert cli.main(["report", str(finished), "--format", kind]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(start)
    assert err == ""
    assert set(finished.iterdir()) == before  # nothing is written


def test_a_figure_is_run_in_a_folder_of_its_own_and_drawn(tmp_path, capsys, monkeypatch):
    cell = Cell("synthetic", "label", 0, epochs=2)
    names = ("Energy", "GNNSafe", "GNNSafe++")
    cells = [(cell, [recipe for recipe in cell.recipes() if recipe.name in names])]
    asked = []
    monkeypatch.setattr(module, "figure_cells", lambda *given: asked.append(given) or cells)
    assert cli.main(["bench", "--figure", "1", "--data", "x", "--epochs", "2", "--out", str(tmp_path)]) == 0
    assert asked == [(1, 1, 2, "x")]
    paths = re.findall(r"^Figure: (.*)$", capsys.readouterr().out, re.M)
    assert paths == [str(tmp_path / "figure-1" / f"figure-1.{kind}") for kind in ("html", "svg", "png", "pdf")]
    assert all(Path(path).stat().st_size > 1000 for path in paths)
    assert len(read(tmp_path / "figure-1")[0]) == 3
    assert cli.main(["report", str(tmp_path), "--format", "markdown"]) == 0
    assert "## Figure 1: energies of ID and OOD nodes" in capsys.readouterr().out
    assert cli.main(["bench", "--figure", "1", "--methods", "msp", "--out", str(tmp_path)]) == 2
    assert "'--methods' must not be given with '--figure' (got both)" in capsys.readouterr().err
