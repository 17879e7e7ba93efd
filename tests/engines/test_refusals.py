"""Bad input: one line, exit code 2, nothing written; and what cannot run in an engine is refused by name."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.engines.conftest import detector, new_graph, tables, write

from gnnsafe import engines
from gnnsafe.cli import main
from gnnsafe.errors import InputError
from gnnsafe.methods import ODIN, Energy, Propagated, TwoScale

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")  # small graphs


def change(name, column, values):
    def changed(given):
        table = getattr(given, name)
        place = table.column_names.index(column)
        setattr(given, name, table.set_column(place, column, pa.array(values(table[column].to_pylist()))))

    return changed


def drop(name, column):
    return lambda given: setattr(given, name, getattr(given, name).drop_columns([column]))


def empty(name):
    return lambda given: setattr(given, name, getattr(given, name).slice(0, 0))


BAD = {
    "no id": (drop("nodes", "id"), "has no column 'id' or 'node_id'"),
    "no target": (drop("edges", "target"), "has no column 'target' or 'dst'"),
    "no feature": (drop("nodes", "f3"), "must have the 8 numbers per node that the detector knows (got 7)"),
    "unknown ends": (change("edges", "source", lambda v: [999, *v[1:]]), "must be the id of a node (got 999, one of 1"),
    "all unknown": (
        change("edges", "source", lambda v: [n + 10**6 for n in v]),
        "; no edge would be left: check that both tables write ids alike",
    ),
    "other types": (
        change("edges", "source", lambda v: [*v[:-1], 36.5]),
        "must be the id of a node (got 36.5, one of 1",
    ),
    "NaN end": (
        change("edges", "target", lambda v: [float("nan"), *v[1:]]),
        "must be the id of a node (got nan, one of 1",
    ),
    "NaN id": (
        change("nodes", "id", lambda v: [float("nan"), *v[1:]]),
        "must have an id for every node (got 1 without)",
    ),
    "no type of an id": (change("nodes", "id", lambda v: [[n] for n in v]), "must be numbers, text, dates or bytes"),
    "null id": (change("nodes", "id", lambda v: [None, *v[1:]]), "must have an id for every node (got 1 without)"),
    "twice": (change("nodes", "id", lambda v: [v[1], *v[1:]]), "must have each id once (got 10 2 times)"),
    "null feature": (change("nodes", "f2", lambda v: [*v[:-1], None]), "must be a finite number (got nothing"),
    "infinite feature": (change("nodes", "f2", lambda v: [*v[:-1], 1e300]), "must be a finite number (got 1e+300"),
    "no edges": (empty("edges"), "'edges' must have at least one row"),
    "no nodes": (empty("nodes"), "must have at least one row"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    detector("gnnsafe").save(folder)
    return folder


def refused(capsys, *arguments):
    """The one line that is printed."""
    assert main([str(argument) for argument in arguments]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("gnnsafe: ")
    return lines[0]


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_refused_in_one_line(case, saved, tmp_path, capsys):
    given, (damage, words) = tables(new_graph("directed")), BAD[case]
    damage(given)
    for name in ("nodes", "edges"):
        parquet.write_table(getattr(given, name), tmp_path / f"{name}.parquet")
    line = refused(capsys, "score", saved, tmp_path, "--engine", "duckdb", "--memory", "1GB", "--out", tmp_path / "out")
    assert words in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.parquet", "nodes.parquet"]


@pytest.mark.parametrize("moment", [np.inf, -np.inf, np.nan, None])
def test_times_that_are_none(moment, saved, tmp_path, capsys):
    given = tables(new_graph("directed"))
    moments = pa.array([moment, *range(len(given.nodes) - 1)], pa.float64())
    parquet.write_table(given.nodes.append_column("timestamp", moments), tmp_path / "nodes.parquet")
    parquet.write_table(given.edges, tmp_path / "edges.parquet")
    line = refused(capsys, "score", saved, tmp_path, "--engine", "duckdb", "--memory", "1GB", "--out", tmp_path / "out")
    assert "'timestamp' must be a finite number or a date for every node (got 1 without)" in line


def test_unknown_edges_may_be_left_out(opened, tmp_path):
    graph, made = new_graph("directed"), detector("gnnsafe")
    given = tables(graph)
    BAD["unknown ends"][0](given)
    graph.edge_index = graph.edge_index[:, 1:]
    with opened("duckdb", tmp_path / "temp") as engine:
        engines.score(engine, made, given.nodes, given.edges, out=tmp_path / "out", drop_unknown_edges=True)
    found = parquet.read_table(tmp_path / "out").sort_by("id")
    np.testing.assert_allclose(found["score"].to_numpy(), made.score(graph).numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("method", "name"), [("gebm", "GEBM"), ("grasp", "GRASP"), ("odin", "ODIN"), ("degree", "Degree")]
)
def test_methods_that_cannot_run_there_are_refused_by_name(method, name, opened, tmp_path):
    made = detector(method)
    words = rf"'method' must be one that runs in an engine .*\(got {name}.*--method"
    with opened("duckdb", tmp_path / "temp") as engine, pytest.raises(InputError, match=words):
        engines.score(engine, made, "nowhere", "nowhere", out=tmp_path / "out")


def test_what_weighs_neighbours_by_their_scores_is_refused(opened, tmp_path):
    made = detector(Propagated(Energy(), steps=2, weighting="similarity"))
    with (
        opened("duckdb", tmp_path / "temp") as engine,
        pytest.raises(InputError, match="must weigh neighbours equally"),
    ):
        engines.score(engine, made, "nowhere", "nowhere", out=tmp_path / "out")


def test_a_part_that_cannot_run_there_is_refused_by_its_name(opened, tmp_path):
    made = detector(TwoScale(unknown=(Energy(), ODIN())))
    with opened("duckdb", tmp_path / "temp") as engine, pytest.raises(InputError, match=r"\(got ODIN"):
        engines.score(engine, made, "nowhere", "nowhere", out=tmp_path / "out")


def test_of_logits_alone_the_way_out_is_a_method_that_reads_them(tmp_path, capsys):
    detector(TwoScale()).save(tmp_path / "saved")
    more = ("--detector", tmp_path / "saved", "--out", tmp_path / "out")
    line = refused(capsys, "score-logits", tmp_path / "nowhere", tmp_path / "nowhere", *more)
    assert "on logits alone (MSP, " in line
    assert line.endswith("(got TwoScale()); fit and calibrate a detector with one of these")


@pytest.mark.parametrize("command", ["score", "score-logits"])
def test_refusals_need_no_engine(command, tmp_path, capsys, monkeypatch):
    """Neither nine seconds of Java's start nor, where there is none, its lack: what cannot run there is told first."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    detector("grasp").save(tmp_path / "grasp")
    detector("gnnsafe").save(tmp_path / "gnnsafe")
    graph = write(new_graph("directed"), tmp_path / "graph")
    both = (graph / "nodes", graph / "edges")

    def line(name, nodes, edges, out):
        given = (name, nodes, "--edges", edges) if command == "score" else (nodes, edges, "--detector", name)
        return refused(capsys, command, *given, "--engine", "spark", "--out", out)

    assert "(got GRASP" in line(tmp_path / "grasp", *both, tmp_path / "out")
    assert "must be a new or an empty folder" in line(tmp_path / "gnnsafe", *both, graph)
    assert "that are there" in line(tmp_path / "gnnsafe", tmp_path / "nowhere", both[1], tmp_path / "out")
    assert "needs Java 17" in line(tmp_path / "gnnsafe", *both, tmp_path / "out")


def test_models_that_cannot_run_there_are_refused_by_name(opened, tmp_path, capsys):
    from tests.conftest import block_graph
    from torch_geometric.nn import GraphSAGE

    from gnnsafe.detector import Detector

    graph = block_graph()
    foreign = Detector(GraphSAGE(8, 16, num_layers=2, out_channels=3), "gnnsafe").fit(graph).calibrate(graph)
    with opened("duckdb", tmp_path / "temp") as engine, pytest.raises(InputError, match="score-logits"):
        engines.score(engine, foreign, "nowhere", "nowhere", out=tmp_path / "out")
    foreign.save(tmp_path / "saved")
    write(new_graph("directed"), tmp_path / "graph")
    command = ("score", tmp_path / "saved", tmp_path / "graph", "--engine", "duckdb", "--out", tmp_path / "out")
    line = refused(capsys, *command)
    assert line.endswith("(got GraphSAGE); write its logits to a table and take score-logits")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--sets", "0.1"], "'--sets' must be left out with --engine duckdb"),
        (["--p-values", "randomized"], "'--p-values' must be exact with --engine duckdb"),
        (["--device", "cuda"], "'--device' must be cpu or left out with --engine duckdb"),
        (["--memory", "much"], "'memory' must be a size such as 4GB (got 'much')"),
        (["--master", "local[2]"], "'--master' must be given with --engine spark"),
        (["--edges", "nowhere/*.parquet"], "must be Parquet files that are there"),
    ],
)
def test_options_that_mean_nothing_there(more, words, saved, tmp_path, capsys):
    write(new_graph("directed"), tmp_path / "graph")
    line = refused(capsys, "score", saved, tmp_path / "graph", "--engine", "duckdb", "--out", tmp_path / "out", *more)
    assert words in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
@pytest.mark.parametrize("command", ["score", "score-logits"])
def test_an_address_is_no_folder_of_this_machine(command, engine, saved, tmp_path, capsys, monkeypatch):
    if (command, engine) == ("score-logits", "memory"):
        pytest.skip("score-logits has engines alone")
    monkeypatch.chdir(tmp_path)
    graph = write(new_graph("directed"), tmp_path / "graph")
    given = (saved, graph) if command == "score" else (graph / "nodes", graph / "edges", "--detector", saved)
    line = refused(capsys, command, *given, "--engine", engine, "--out", "s3://lake/scores.parquet")
    assert "'--out' must be on this machine, but with --engine spark (got 's3://lake/scores.parquet')" in line
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


@pytest.mark.parametrize("option", [("--memory", "4GB"), ("--temp", "there"), ("--master", "yarn"), ("--conf", "k=v")])
def test_memory_heeds_no_option_of_an_engine(option, saved, tmp_path, capsys):
    line = refused(capsys, "score", saved, tmp_path, *option, "--out", tmp_path / "out.parquet")
    assert f"'{option[0]}' must be given with --engine " in line


def test_what_is_there_is_not_written_over(saved, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    write(new_graph("directed"), tmp_path / "graph")
    line = refused(capsys, "score", saved, tmp_path / "graph", "--engine", "duckdb", "--out", tmp_path / "out")
    assert "must be a new or an empty folder" in line


def test_no_java_and_a_dead_master(saved, tmp_path, capsys, monkeypatch):
    write(new_graph("directed"), tmp_path / "graph")
    command = ("score", saved, tmp_path / "graph", "--engine", "spark", "--out", tmp_path / "out")
    assert "must be one that answers (got 'spark://127.0.0.1:9'" in refused(
        capsys, *command, "--master", "spark://127.0.0.1:9"
    )
    assert "must be local[N], spark://host:port" in refused(capsys, *command, "--master", "here")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "the engine spark needs Java 17" in refused(capsys, *command)
    assert not (tmp_path / "out").exists()


def test_workers_of_another_python_are_told_how_to_get_ours(monkeypatch):
    engine = engines.Spark()
    monkeypatch.setattr(engine, "_errors", (RuntimeError,), raising=False)
    with pytest.raises(InputError, match=r"must have workers with gnnsafe .* PYSPARK_PYTHON"), engine._one_line("plan"):
        raise RuntimeError("Job aborted\nModuleNotFoundError: No module named 'gnnsafe'\n at java")


FULL = """
import resource, sys
from gnnsafe.cli import main

for limit in (100, 1200, 2000, 4000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    print(main(sys.argv[1:]))
"""


def test_a_full_disk(saved, tmp_path):
    """A file may not grow beyond some size: the system refuses as a full disk does, wherever the run then is."""
    write(new_graph("directed"), tmp_path / "graph")
    command = ["score", saved, tmp_path / "graph", "--engine", "duckdb", "--out", tmp_path / "out"]
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FULL, *map(str, command)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert result.stdout.split() == ["2"] * 4, result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 4, result.stderr
    assert lines[0].endswith("; name a folder on a larger disk (--temp)")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph"]


@pytest.mark.parametrize(
    ("write_by", "more"),
    [("gnnsafe.engines.DuckDB.write", ["--engine", "duckdb"]), ("gnnsafe.cli.score.write_table", [])],
    ids=["duckdb", "memory"],
)
def test_of_a_table_that_cannot_be_written_nothing_is_warned(write_by, more, saved, tmp_path, capsys, monkeypatch):
    given = tables(new_graph("directed"))
    for name in ("nodes", "edges"):
        parquet.write_table(getattr(given, name), tmp_path / f"{name}.parquet")
    command = ["score", saved, tmp_path, "--false-alarm", "0.001", "--out", tmp_path / "out.parquet", *more]

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(write_by, full)
        assert "No space left" in refused(capsys, *command)
    assert main([*map(str, command)]) == 0
    assert "calibration nodes are too few" in capsys.readouterr().err


WRITES = """
import resource, sys
from gnnsafe import engines
from gnnsafe.errors import InputError

temp, said = sys.argv[1], []
with engines.DuckDB(memory="1GB", threads=4, temp=temp) as engine:
    engine.create("rows_", "SELECT range AS id, random() AS a FROM range(400000)")
    parts = f"COPY rows_ TO '{engine.folder}/parts.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)"  # for every thread
    engine.rows(parts)
    table = f"SELECT * FROM read_parquet('{engine.folder}/parts.parquet')"
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    for store in [lambda: engine.write(table, temp + "/out"), lambda: engine.create("stored", table)] * 20:
        try:
            store()
        except InputError as error:
            said.append(str(error))
assert len(said) == 40 and all(line.endswith(": File too large)") for line in said), said
"""


def test_threads_that_write_while_the_disk_is_full(tmp_path):
    """DuckDB 2.0 crashes, or waits for ever, where several of them write parts: most of the time within 20 tries."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", "-c", WRITES, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    assert [*tmp_path.iterdir()] == []


def test_a_graph_that_does_not_fit_into_memory_is_told_the_engine_that_takes_it(saved, tmp_path, capsys, monkeypatch):
    given = tables(new_graph("directed"))
    for name in ("nodes", "edges"):
        parquet.write_table(getattr(given, name), tmp_path / f"{name}.parquet")
    monkeypatch.setattr("gnnsafe.engines.fits.available", lambda: 1000)
    line = refused(capsys, "score", saved, tmp_path, "--out", tmp_path / "out.parquet")
    assert "'GRAPH' must fit into memory" in line
    assert "take --engine duckdb" in line


def test_each_way_to_read_a_graph_names_the_other(saved, tmp_path, capsys):
    graph = write(new_graph("directed"), tmp_path / "graph")
    line = refused(capsys, "score", saved, graph, "--out", tmp_path / "out.parquet")
    assert line.endswith("; the parts in nodes/ are read by gnnsafe score --engine duckdb")
    part = graph / "nodes" / "0.parquet"
    line = refused(capsys, "score", saved, part, "--engine", "duckdb", "--out", tmp_path / "out")
    assert line.endswith("; if it is the table of nodes, name that of edges by --edges")


def test_tables_of_another_kind(opened, tmp_path):
    (tmp_path / "nodes.csv").write_text("id,a\n1,2\n")
    with opened("duckdb", tmp_path / "temp") as engine:
        with pytest.raises(InputError, match="must be Parquet for an engine other than memory"):
            engine.view("given_nodes", str(tmp_path / "nodes.csv"))
        (tmp_path / "nodes.parquet").write_text("no Parquet")
        with pytest.raises(InputError, match=r"cannot be read or stored by duckdb"):
            engine.view("given_nodes", str(tmp_path / "nodes.parquet"))


@pytest.mark.parametrize("nodes", [7, [1, 2], None])
def test_what_is_no_table(nodes, opened, tmp_path):
    words = "'nodes' must be a path, or a table of Arrow"
    with opened("duckdb", tmp_path / "temp") as engine, pytest.raises(InputError, match=words):
        engines.score(engine, detector("gnnsafe"), nodes, nodes, out=tmp_path / "out")


@pytest.mark.parametrize("engine", [engines.DuckDB(memory="1GB"), engines.Spark(), "duckdb"])
def test_engines_that_were_not_entered(engine, tmp_path):
    with pytest.raises(InputError, match="'engine' must be one that was entered"):
        engines.score(engine, detector("gnnsafe"), "nodes", "edges", out=tmp_path / "out")
