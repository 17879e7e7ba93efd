"""What is asked of DuckDB, asked of Spark, in one file: so one worker starts it, which takes longer than most tests."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import py4j
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.engines.conftest import SHORT_LIVED, detector, new_graph, tables, write
from tests.engines.test_equal import (
    METHODS,
    NEAR,
    check,
    check_far_off,
    run,
    test_a_value_worked_out_by_hand,  # noqa: F401 - asked here, too
    test_false_discoveries_by_class_of_scaled_features_in_files,  # noqa: F401 - asked here, too
    test_logits_of_anybodys_model,  # noqa: F401 - asked here, too
    test_probabilities_are_no_logits,  # noqa: F401
)
from tests.engines.test_faults import ENVIRONMENT
from tests.engines.test_inputs import IDS, check_floats, check_times, check_weights
from tests.engines.test_inputs import check as check_ids
from tests.engines.test_refusals import BAD

from gnnsafe import engines
from gnnsafe.cli import main
from gnnsafe.engines.cluster import Storage
from gnnsafe.engines.workspace import PREFIX
from gnnsafe.errors import InputError
from gnnsafe.methods import KNN, GNNSafe

pytestmark = pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")  # small graphs


@pytest.fixture
def name() -> str:
    return "spark"


@pytest.mark.parametrize("method", [NEAR, *METHODS[-2:]], ids=["TwoScale", *map(repr, METHODS[-2:])])
def test_scores_are_memorys(method, opened, tmp_path):
    made, graph = detector(method), new_graph("all")
    check(*run("spark", opened, tmp_path, made, graph), made.decide(graph, false_alarm=0.1))


def test_two_scale_beside_nodes_that_are_far_off(opened, tmp_path):
    check_far_off("spark", opened, tmp_path, undirected=True)


@pytest.mark.parametrize(("backbone", "undirected"), [("GraphSAGE", True), ("APPNP", True), ("GIN", False)])
def test_backbones(backbone, undirected, opened, tmp_path):
    made, graph = detector(KNN(), backbone, undirected=undirected), new_graph("all")
    check(*run("spark", opened, tmp_path, made, graph), made.decide(graph, false_alarm=0.1))


@pytest.mark.parametrize("kind", ["bytes", "decimals"])
def test_ids_of_any_type(kind, opened, tmp_path):
    check_ids(opened, tmp_path, IDS[kind], name="spark")


@pytest.mark.parametrize("kind", ["float", "double"])
def test_floats_meet_ids_while_they_stand_for_one_number_alone(kind, opened, tmp_path):
    check_floats(opened, tmp_path, kind, name="spark")


def test_what_is_stored_again_takes_the_place_of_the_former(opened, tmp_path):
    """As where one engine scores several graphs."""
    with opened("spark", tmp_path) as engine:
        for size in (5, 3):
            engine.create("stored", f"SELECT id FROM range({size})")
            assert engine.rows("SELECT count(*) FROM stored") == [(size,)]


def test_what_py4j_logs_of_ctrl_c_is_not_shown(spark):
    record = logging.LogRecord("root", logging.ERROR, py4j.__file__, 1, "Exception while sending command.", (), None)
    assert not logging.getLogger().filter(record)


def test_times(opened, tmp_path):
    check_times(opened, tmp_path, pa.timestamp("us"), name="spark")


def test_weights_of_edges_are_not_left_out_without_a_word(opened, tmp_path):
    check_weights(opened, tmp_path, name="spark")


def test_an_address(opened, tmp_path, capsys):
    """As s3://… is: the temporary tables and the result lie there, and what is there is seen before any work."""
    detector("msp", "MLP").save(tmp_path / "detector")  # few steps
    graph, address = write(new_graph("directed"), tmp_path / "graph"), tmp_path.as_uri()
    opened("spark", tmp_path)  # whose session the command takes
    command = ["score", str(tmp_path / "detector"), str(graph), "--engine", "spark", "--out", f"{address}/out"]
    assert main(command) == 0
    assert parquet.read_table(tmp_path / "out").num_rows == 90
    assert sorted(path.name for path in tmp_path.iterdir()) == ["detector", "graph", "out"]
    capsys.readouterr()
    assert main(command) == 2
    assert "'out' must be a new folder (got 'file://" in capsys.readouterr().err


def test_ctrl_c_while_java_starts_leaves_no_java(tmp_path):
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += f"from gnnsafe import engines\nengines.Spark(master='local[1]', temp={str(tmp_path)!r}).__enter__()"
    with subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        while not (started := psutil.Process(process.pid).children(recursive=True)):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]
    assert not psutil.wait_procs(started, timeout=30)[1]
    assert not [*tmp_path.iterdir()]


def test_shuffles_lie_where_temporary_tables_do(spark):
    """And so are removed with them, also by the run after one that was killed."""
    folder = Path(spark.sparkContext.getConf().get("spark.local.dir"))
    assert folder.name.startswith(PREFIX)
    assert [*folder.glob("blockmgr-*")]


def test_a_full_disk(opened, tmp_path):
    """Java may not write more than some bytes to a file: the system refuses as a full disk does."""
    with opened("spark", tmp_path) as engine:
        engine.create("stored", "SELECT id FROM range(3)")  # Java loads what it needs to write
        (java,) = (one for one in psutil.Process().children() if one.name() == "java")
        before = java.rlimit(psutil.RLIMIT_FSIZE)
        java.rlimit(psutil.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with pytest.raises(InputError) as caught:
                engine.create("stored", "SELECT id, rand() FROM range(100000)")
        finally:
            java.rlimit(psutil.RLIMIT_FSIZE, before)
        assert str(caught.value).endswith("; name folders on a larger disk (--temp, --out)")
    assert [*tmp_path.iterdir()] == []


def test_what_a_killed_run_left_at_an_address_is_removed_after_a_day(spark, tmp_path):
    """Temporary tables, and beside the output what was to become it."""
    for place in ("temp", "lake"):
        for name, age in (("old", 2), ("young", 0)):
            (tmp_path / place / f"{PREFIX}{name}" / "part").mkdir(parents=True)
            os.utime(tmp_path / place / f"{PREFIX}{name}", (time.time() - age * 86400,) * 2)
    with (
        Storage(spark, f"{tmp_path.as_uri()}/temp") as storage,
        storage.published(f"{tmp_path.as_uri()}/lake/out") as part,
    ):
        spark.range(3).write.parquet(part)
        assert {path.name for path in (tmp_path / "lake").iterdir()} == {f"{PREFIX}young", part.rpartition("/")[2]}
        assert part.rpartition("/")[2].startswith(PREFIX)  # so another run would know it
    assert spark.read.parquet(f"{tmp_path}/lake/out").count() == 3
    assert {path.name for path in (tmp_path / "lake").iterdir()} == {f"{PREFIX}young", "out"}
    assert {path.name for path in (tmp_path / "temp").iterdir()} == {f"{PREFIX}young"}


@pytest.mark.parametrize("case", ["null feature", "unknown ends"])
def test_bad_tables_are_refused_in_the_same_words(case, opened, tmp_path):
    given, (damage, words) = tables(new_graph("directed")), BAD[case]
    damage(given)
    with opened("spark", tmp_path) as engine, pytest.raises(InputError) as caught:
        engines.score(engine, detector("gnnsafe"), given.nodes, given.edges, out=tmp_path / "out")
    assert words in str(caught.value)
    assert [*tmp_path.iterdir()] == []


CLUSTER = """
import sys, threading, time, warnings
import psutil, pyspark, os
os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
from gnnsafe import engines
from gnnsafe.errors import CalibrationWarning
warnings.simplefilter("ignore", CalibrationWarning)  # a small graph
from gnnsafe.detector import load
folder = sys.argv[1]
killed = []

def kill():
    while not killed:  # one of the two workers' processes, once the second step is there
        time.sleep(0.05)
        steps = [name for _, names, _ in os.walk(folder) for name in names if name == "step2"]
        for process in psutil.Process().children(recursive=True) if steps else ():
            try:
                if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                    process.kill()
                    killed.append(process.pid)
                    break
            except psutil.Error:  # it ended by itself
                pass

conf = {"spark.sql.shuffle.partitions": "2", "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
conf |= {f"spark.{part}.extraJavaOptions": sys.argv[2] for part in ("driver", "executor")}
with engines.Spark(master="local-cluster[2,1,1024]", conf=conf, temp=folder) as engine:
    threading.Thread(target=kill, daemon=True).start()
    nodes, edges = folder + "/graph/nodes", folder + "/graph/edges"
    engines.score(engine, load(folder + "/detector"), nodes, edges, out=folder + "/out")
print("killed", len(killed))
"""


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory):
    """A job on two workers that runs beside the other tests of this file: it waits more than it works."""
    folder = tmp_path_factory.mktemp("cluster")
    detector(GNNSafe(steps=1)).save(folder / "detector")
    write(new_graph("all"), folder / "graph")
    command = [sys.executable, "-c", CLUSTER, str(folder), SHORT_LIVED]
    with (folder / "said").open("w+") as said, (folder / "told").open("w+") as told:
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=said, stderr=told)
        yield process, folder
        process.kill()
        process.wait()


def test_a_killed_worker_does_not_lose_the_job(cluster):
    process, folder = cluster
    process.wait(timeout=300)
    assert (folder / "said").read_text().endswith("killed 1\n"), (folder / "told").read_text()[-2000:]
    assert (folder / "told").read_text() == ""  # neither Java nor a worker nor PySpark says anything
    graph, found = new_graph("all"), {}
    for row in parquet.read_table(folder / "out").to_pylist():
        found[row["id"]] = row["score"]
    scores = detector(GNNSafe(steps=1)).score(graph).tolist()
    np.testing.assert_allclose([found[node] for node in tables(graph).nodes["id"].to_pylist()], scores, rtol=1e-5)
