"""Processes killed in the middle: no part of an output, nothing left behind, no job lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.engines.conftest import detector

from gnnsafe import engines
from gnnsafe.engines.workspace import PREFIX, published, workspace
from gnnsafe.errors import InputError
from gnnsafe.methods import GNNSafe
from gnnsafe.saving import read

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
NODES = 200_000

pytestmark = pytest.mark.filterwarnings("ignore::gnnsafe.errors.CalibrationWarning")  # small graphs


def large(folder: Path) -> None:
    """Logits and edges that take a second or two."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((3, NODES), dtype=np.float32)
    ids = np.arange(NODES)
    parquet.write_table(
        pa.table({"id": ids, **{f"z{k}": row for k, row in enumerate(logits)}}), folder / "logits.parquet"
    )
    ends = rng.integers(0, NODES, (2, 5 * NODES))
    parquet.write_table(pa.table({"source": ends[0], "target": ends[1]}), folder / "edges.parquet")


@pytest.mark.parametrize("moment", [f"{PREFIX}*", f"{PREFIX}*/step1-value", f"{PREFIX}*/parts"])
def test_sigkill_leaves_nothing_after_the_next_run(moment, tmp_path):
    large(tmp_path)
    detector(GNNSafe(steps=4)).save(tmp_path / "detector")
    out = tmp_path / "out"
    command = ["score-logits", "logits.parquet", "edges.parquet", "--detector", "detector", "--out", "out"]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "gnnsafe", *command, "--engine", "duckdb", "--memory", "1GB"],
        cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while process.poll() is None and not any(tmp_path.glob(moment)):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if out.exists():  # it was quicker: then all of it is there
        assert parquet.read_table(out).num_rows == NODES
        out.rename(tmp_path / "whole")
    saved, _ = read(tmp_path / "detector")
    rows, edges = str(tmp_path / "logits.parquet"), str(tmp_path / "edges.parquet")
    with engines.DuckDB(memory="1GB", threads=1, temp=tmp_path) as engine:
        engines.score_logits(engine, saved, rows, edges, out=out)
    assert parquet.read_table(out).num_rows == NODES
    assert not [*tmp_path.glob(".*")]


INTERRUPTED = """
import os, signal, sys, threading
from gnnsafe import engines

signal.signal(signal.SIGINT, signal.default_int_handler)
endless = "SELECT sum(sin(range)) FROM range(1000000000000)"
with engines.DuckDB(memory="1GB", threads=1, temp=sys.argv[1]) as engine:
    for ask in (engine.rows, lambda sql: [*engine.batches(sql, 10)], lambda sql: engine.create("stored", sql)):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            ask(endless)
        except KeyboardInterrupt:
            print("interrupted")
"""


def test_ctrl_c_in_a_query_is_one_of_pythons(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["interrupted"] * 3, done.stderr
    assert not [*tmp_path.iterdir()]


def test_folders_of_the_living_are_left_alone(tmp_path):
    with workspace(tmp_path) as mine:
        with workspace(tmp_path) as other:
            assert mine.exists()
            assert other != mine
        assert mine.exists()
        assert not other.exists()
    assert not [*tmp_path.iterdir()]


def test_two_who_write_the_same_place_and_one_who_fails(tmp_path):
    def late():
        with published(tmp_path / "out") as part:
            (part / "late").touch()
            with published(tmp_path / "out") as first:
                (first / "first").touch()

    def failing():
        with published(tmp_path / "other") as part:
            (part / "half").touch()
            raise RuntimeError

    with pytest.raises(InputError, match="must be a new folder"):
        late()
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["first"]
    with pytest.raises(RuntimeError):
        failing()
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
