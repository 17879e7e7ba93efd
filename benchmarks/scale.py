"""Engines beside memory, from Parquet to Parquet: time, peak memory of the whole process tree, disk.

`python -m benchmarks.scale` runs every row of `ROWS` that scale.json beside this file has not yet, one after the other,
and stores each when it is done: what was interrupted goes on where it was. `--rows REGEX` takes those alone whose names
match, `--again` also those that are there, `--list` only names them. Graphs are drawn by this script into `--data`, by
default a folder of the system's temporary one, and stay there for the next row. scale.md and scale.svg are written
again after every row.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

ROOT = Path(__file__).parents[1]
RECORDS, PAGE = (Path(__file__).with_name(f"scale.{ending}") for ending in ("json", "md"))
DEGREE, CLASSES, FEATURES, HIDDEN = 15, 8, 128, 64
PART = 10**6  # rows of nodes in a file
CORES = 2  # of the machine that measures
MACHINES = 10  # of the calculation on paper: 16 cores each, and
MOVED = 130  # seconds a step for network and disk, by the table in docs/scale.md


def draw(folder: Path, nodes: int, *, features: bool) -> None:
    """A graph with 15 edges a node, their ends drawn from a heavy-tailed distribution; ids in no order."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    ids = rng.permutation(nodes).astype(np.int64)
    width, name = (FEATURES, "f") if features else (CLASSES, "z")
    for kind in ("nodes", "edges"):
        (folder / kind).mkdir(parents=True)
    for part, start in enumerate(range(0, nodes, PART)):
        here = ids[start : start + PART]
        values = rng.standard_normal((width, len(here)), dtype=np.float32)
        columns = {f"{name}{column}": values[column] for column in range(width)}
        parquet.write_table(pa.table({"id": here, **columns}), folder / "nodes" / f"{part:04}.parquet")
        count = len(here) * DEGREE
        source = (nodes * rng.random(count) ** 2).astype(np.int64)  # a few nodes have many edges
        target = (nodes * rng.random(count)).astype(np.int64)
        edges = pa.table({"source": source, "target": target})
        parquet.write_table(edges, folder / "edges" / f"{part:04}.parquet")


def detector(folder: Path, row: Row) -> None:
    """A detector that was fitted and calibrated on a small graph of that kind."""
    import torch
    from torch_geometric.data import Data

    import gnnsafe
    from gnnsafe.models import GCN, MLP

    torch.manual_seed(0)
    features = row.what != "energy"
    nodes, width = 2000, FEATURES if features else CLASSES
    mask = torch.arange(nodes) % 2 == 0
    edges = torch.randint(nodes, (2, nodes * DEGREE))
    graph = Data(x=torch.randn(nodes, width), edge_index=edges, y=torch.arange(nodes) % CLASSES)
    graph.train_mask, graph.val_mask = mask, ~mask
    model = GCN(width, HIDDEN, CLASSES) if features else MLP(width, HIDDEN, CLASSES)
    method = gnnsafe.methods.GNNSafe(steps=row.steps) if row.what != "two-scale" else gnnsafe.methods.TwoScale()
    gnnsafe.Detector(model, method).fit(graph).calibrate(graph).save(folder)


def tree_use(root: int, seconds: dict[psutil.Process, float]) -> int:
    """Bytes of memory that a process and all its children hold, shared ones once (PSS).

    The processor time of each goes into `seconds`, where it stays when the process has ended.
    """
    total = 0
    try:
        family = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    except psutil.Error:
        return 0
    for process in family:
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
            total += next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            seconds[process] = sum(process.cpu_times()[:2])
        except (OSError, StopIteration, psutil.Error):
            continue
    return total


def waited_for() -> float:
    """Seconds of processors that ended children have taken, and theirs that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def folder_size(folder: Path) -> int:
    """Bytes of all files in it."""
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            try:
                total += (Path(place) / file).stat().st_size
            except OSError:
                continue
    return total


def measured(command: list[str], temp: Path) -> dict[str, float]:
    """Seconds, peak memory and peak disk of a command."""
    peak = {"memory": 0, "disk": 0}
    seen: dict[psutil.Process, float] = {}
    done = threading.Event()
    load = os.getloadavg()[0]  # of others, over the minute before
    start, before = time.perf_counter(), waited_for()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)

    def watch() -> None:
        while not done.wait(0.5):
            peak["memory"] = max(peak["memory"], tree_use(process.pid, seen))
            peak["disk"] = max(peak["disk"], folder_size(temp))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = process.communicate()
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\n{out}\n{err}")
    # Both miss some: the former Spark's JVM, which nobody waits for, the latter what came after the last look.
    cpu = max(waited_for() - before, sum(seen.values()))
    used = {"cpu": cpu, "gigabytes": peak["memory"] / 1e9, "disk": peak["disk"] / 1e9}
    return {"seconds": seconds, "load": load, **used}


def memory_run(graph: Path, folder: Path) -> None:
    """In this process: the in-memory engine from Parquet to Parquet, as `gnnsafe score` and score_logits are."""
    import pyarrow as pa
    import torch
    from pyarrow import parquet

    import gnnsafe
    from gnnsafe.datasets.reading.ids import positions
    from gnnsafe.report.decisions import write_table
    from gnnsafe.saving import read

    saved, _ = read(folder)
    nodes, edges = parquet.read_table(graph / "nodes"), parquet.read_table(graph / "edges")
    ids = nodes["id"].combine_chunks()
    logits = torch.from_numpy(np.stack([nodes[f"z{k}"].to_numpy() for k in range(CLASSES)], axis=1))
    index = np.stack([positions(Path("edges"), edges[end], end, ids) for end in ("source", "target")])
    scores = gnnsafe.score_logits(logits, torch.from_numpy(index), method=saved.method)
    assert saved.calibration is not None
    p = saved.calibration.p_values(scores)
    flags = saved.calibration.decisions(p, false_alarm=0.05)
    columns = {"id": ids, "score": scores.numpy(), "p_value": p.numpy(), "flag": flags.numpy()}
    with tempfile.TemporaryDirectory(dir=graph.parent) as out:
        write_table(Path(out) / "memory.parquet", pa.table(columns))


def run(row: Row, graph: Path, saved: Path) -> dict[str, float]:
    """One measurement."""
    with tempfile.TemporaryDirectory(dir=graph.parent) as folder:
        temp, out = Path(folder) / "temp", Path(folder) / "out"
        base = [sys.executable, "-W", "ignore", "-m"]
        logits = row.what == "energy"
        if row.engine == "memory" and logits:
            command = [*base, "benchmarks.scale", "--in-memory", str(graph), str(saved)]
        elif row.engine == "memory":  # one part each, as read_graph takes them
            given = [str(saved), f"{graph}/nodes/0000.parquet", "--edges", f"{graph}/edges/0000.parquet"]
            command = [*base, "gnnsafe", "score", *given, "--out", f"{folder}/memory.parquet"]
        else:
            what = ["score-logits", f"{graph}/nodes", f"{graph}/edges", "--detector", str(saved)]
            what = what if logits else ["score", str(saved), str(graph)]
            more = ["--memory", row.memory] if row.engine == "duckdb" else ["--master", "local[2]"]
            if row.engine == "spark":
                more += ["--conf", "spark.driver.memory=6g"]
            command = [*base, "gnnsafe", *what, "--engine", row.engine, *more, "--out", str(out), "--temp", str(temp)]
        return measured(command, temp)


def page(records: dict[str, Any]) -> str:
    """The table of all records."""
    head = ("what", "nodes", "edges", "engine", "allowed", "time", "of processors", "load", "peak memory", "disk")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for one in sorted(records.values(), key=lambda r: (r["what"], r["steps"], r["nodes"], r["engine"])):
        what = WHAT[one["what"]].format(one["steps"])
        size = [what, f"{one['nodes']:.0e}", f"{one['edges']:.1e}", one["engine"], one["memory"]]
        cpu, disk = (
            "–" if one[key] is None else f"{one[key]:.1f} {unit}" for key, unit in (("cpu", "s"), ("disk", "GB"))
        )
        time_taken = [f"{one['seconds']:.1f} s", cpu, f"{one['load']:.1f}"]
        room = [f"{one['gigabytes']:.2f} GB", disk]
        lines.append(f"| {' | '.join([*size, *time_taken, *room])} |")
    return "\n".join(lines) + "\n"


def sums(nodes: int, temp: Path | None) -> dict[str, float]:
    """Seconds of one sum of 64 columns over 15 edges a node: by SQL, and over sorted edges in files."""
    import duckdb
    import pyarrow as pa
    import torch

    from gnnsafe.engines.columns import Writer, spans
    from gnnsafe.engines.engine import Column
    from gnnsafe.engines.grid import GridWriter

    torch.set_num_threads(2)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((nodes, HIDDEN), dtype=np.float32)
    ends = rng.integers(0, nodes, (2, nodes * DEGREE))
    with tempfile.TemporaryDirectory(dir=temp) as folder:
        connection = duckdb.connect()
        connection.execute(f"SET memory_limit='4GB'; SET threads=2; SET temp_directory='{folder}/spill'")
        connection.execute("SET preserve_insertion_order=false")
        connection.register("edges", pa.table({"source": ends[0], "target": ends[1]}))
        columns = {f"c{k}": rows[:, k] for k in range(HIDDEN)}
        connection.register("rows", pa.table({"id": np.arange(nodes), **columns}))
        added = ", ".join(f"sum(s.c{k}) AS c{k}" for k in range(HIDDEN))
        start = time.perf_counter()
        query = f"SELECT e.target, {added} FROM edges AS e JOIN rows AS s ON e.source = s.id GROUP BY e.target"
        connection.execute(f"COPY ({query}) TO '{folder}/sums.parquet' (FORMAT parquet)")
        by_sql = time.perf_counter() - start
        start = time.perf_counter()
        with GridWriter(Path(folder), nodes, targets=nodes, sources=nodes, both_ways=False) as writer:
            for low, high in spans(nodes * DEGREE, PART):
                writer.add(*ends[:, low:high])
            grid, _ = writer.finish(lambda: None)
        sorting = time.perf_counter() - start
        with Writer(Path(folder), "rows", {"value": Column(HIDDEN)}) as written:
            written.add({"value": torch.from_numpy(rows)})
        start = time.perf_counter()
        grid.sums(written.files["value"], (0, nodes), {})
        return {"nodes": nodes, "sql": by_sql, "sorting": sorting, "files": time.perf_counter() - start}


def draw_chart(records: dict[str, Any]) -> None:
    """Time and memory by edges, a line for each engine."""
    import altair

    rows = [
        {"edges": one["edges"], "engine": f"{one['engine']}, {one['what']}", "figure": figure, "value": one[key]}
        for one in records.values()
        if one["steps"] == 2
        for key, figure in (("seconds", "seconds"), ("gigabytes", "GB of memory at the peak"))
    ]
    chart = (
        altair.Chart(altair.Data(values=rows))
        .mark_line(point=True)
        .encode(
            x=altair.X("edges:Q", scale=altair.Scale(type="log")),
            y=altair.Y("value:Q", scale=altair.Scale(type="log"), title=None),
            color="engine:N",
        )
        .properties(width=260, height=200)
        .facet(column=altair.Column("figure:N", title=None))
        .resolve_scale(y="independent")
    )
    chart.save(str(PAGE.with_suffix(".svg")))


INTRODUCTION = """# Engines beside memory

`python -m benchmarks.scale` on two cores: from Parquet to Parquet, each figure a process of its own with its start and
imports, memory the peak of the whole process tree (PSS, so that shared pages count once). Graphs are drawn by the
script: 15 edges a node, sources from a heavy-tailed distribution, whole numbers in no order as ids. *energy K=n*: eight
logits a node, energy propagated n times, p-values and flags. *GCN*: 128 features, two layers of 64, then the same with
K = 2. *TwoScale*: the default detector on the same graph. A row that is not in the table was not run, and – was not
measured. *disk* is the peak of temporary files. *load* is the machine's load average over the minute before: above 1,
other work may have shared the cores, and the column *of processors* (seconds of all cores) is the one to compare.

"""


class Row(NamedTuple):
    """What is measured."""

    what: str
    nodes: int
    engine: str
    steps: int = 2
    memory: str = "-"
    """What DuckDB may take."""

    @property
    def name(self) -> str:
        """As it is stored."""
        return f"{WHAT[self.what].format(self.steps)} {self.nodes} {self.engine} {self.memory}"


WHAT = {"energy": "energy K={}", "gcn": "GCN, K={}", "two-scale": "TwoScale"}
MILLION = 10**6
ROWS = [
    Row("energy", MILLION, "memory"),
    Row("energy", MILLION, "duckdb", memory="1GB"),
    Row("gcn", MILLION, "memory"),
    Row("gcn", MILLION, "duckdb", memory="2GB"),
    Row("two-scale", MILLION // 10, "memory"),
    Row("two-scale", MILLION // 10, "duckdb", memory="1GB"),
    Row("two-scale", MILLION, "memory"),
    Row("two-scale", MILLION, "duckdb", memory="2GB"),
    Row("energy", MILLION // 10, "spark", steps=2),
    Row("energy", MILLION // 10, "spark", steps=16),
    Row("energy", MILLION, "spark", steps=2),
    Row("energy", MILLION, "spark", steps=16),
    Row("energy", 10 * MILLION, "memory"),
    Row("energy", 10 * MILLION, "duckdb", memory="2GB"),
    Row("energy", 30 * MILLION, "duckdb", memory="4GB"),
    Row("gcn", 10 * MILLION, "duckdb", memory="8GB"),
]


def main() -> None:
    """Run what is asked for and not there yet, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="", help="a regular expression of their names")
    parser.add_argument("--again", action="store_true", help="also rows that were run before")
    parser.add_argument("--list", action="store_true", help="name the rows, and end")
    parser.add_argument("--draw", action="store_true", help="draw the graphs of these rows, and end")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "gnnsafe-scale")
    parser.add_argument("--in-memory", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sums", action="store_true", help="time a sum over neighbours, by SQL and over files")
    arguments = parser.parse_args()
    if arguments.in_memory:
        memory_run(*arguments.in_memory)
        return
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    if arguments.sums:
        records["sums"] = sums(300_000, None)
        stored(records)
        return
    for row in [row for row in ROWS if re.search(arguments.rows, row.name)]:
        if arguments.list or (row.name in records and not arguments.again):
            print(row.name, "(there)" if row.name in records else "")
            continue
        graph, saved = made(arguments.data, row)
        if not arguments.draw:
            records[row.name] = {**row._asdict(), "edges": row.nodes * DEGREE, **run(row, graph, saved)}
            print(row.name, records[row.name], flush=True)
            stored(records)


def made(folder: Path, row: Row) -> tuple[Path, Path]:
    """The row's graph and detector, drawn where they are not there yet."""
    features = row.what != "energy"
    graph = folder / f"{'features' if features else 'logits'}-{row.nodes}"
    if not graph.exists():
        part = folder / f"{graph.name}-part"
        shutil.rmtree(part, ignore_errors=True)
        draw(part, row.nodes, features=features)
        part.rename(graph)
    saved = folder / f"detector-{row.what}-{row.steps}"
    if not saved.exists():
        detector(saved, row)
    return graph, saved


def growth(rows: dict[str, Any]) -> str:
    """How DuckDB's time grows with the edges, of energy and of a GCN."""
    by_size = {(one["what"], one["nodes"]): one for one in rows.values() if one["engine"] == "duckdb"}
    if not {(what, nodes) for what in ("energy", "gcn") for nodes in (MILLION, 10 * MILLION)} <= by_size.keys():
        return ""
    (time_, cpu), (gcn_time, gcn_cpu) = (
        [by_size[what, 10 * MILLION][key] / by_size[what, MILLION][key] for key in ("seconds", "cpu")]
        for what in ("energy", "gcn")
    )
    return (
        f"\nFrom 1.5e7 edges to 1.5e8 DuckDB's time grows {time_:.1f}-fold for energy (of processors {cpu:.1f}) and "
        f"{gcn_time:.1f}-fold for the GCN ({gcn_cpu:.1f}); rows of different load compare by processors at best. "
        f"At 1e7 nodes the GCN's layer of {HIDDEN} columns is 2.6 GB. A range of nodes may take a quarter of the "
        "7.5 GB that 8 GB leave, so there are two, where 1e6 nodes are one, and every sum reads the layer twice.\n"
    )


def on_paper(rows: dict[str, Any]) -> str:
    """What the local rows say of 1e9 nodes and 1.5e10 edges: time on Spark, memory and disk on DuckDB."""
    few, many = (rows.get(Row("energy", MILLION, "spark", steps=steps).name) for steps in (2, 16))
    large = rows.get(Row("energy", 30 * MILLION, "duckdb", memory="4GB").name)
    if few is None or many is None or large is None:
        return ""
    step, cpu = ((many[key] - few[key]) / (many["steps"] - few["steps"]) for key in ("seconds", "cpu"))
    rest = few["seconds"] - few["steps"] * step
    at_most, at_least = (seconds / few["edges"] for seconds in (CORES * step, cpu))
    there, work = (1.5e10 * each / (MACHINES * 16) for each in (at_most, at_least))
    steps = 2 + rest / step
    edges, minutes = f"{few['edges']:.1e}", steps * (there + MOVED) / 60
    return (
        f"\nOn {CORES} cores {edges} edges took {few['seconds']:.0f} s with K = 2 and {many['seconds']:.0f} s with "
        f"K = 16, so {step:.1f} s a step, in which the cores worked {cpu:.1f} s together: c, the core-seconds for an "
        f"edge and a step, is at most {CORES} · {step:.1f} / {edges} = {at_most:.1e}, waiting included, and "
        f"{at_least:.1e} by processor time. That is {work:.0f} to {there:.0f} s a step on {MACHINES} machines of 16 "
        f"cores. Reading the tables, matching ids (two semi-joins) and writing came to {rest:.0f} s, with the start of "
        f"Spark: {rest / step:.1f} such steps. So 1.5e10 edges with K = 2 take at most about {steps:.1f} × "
        f"({there:.0f} + {MOVED}) s, {minutes:.0f} minutes.\n"
        f"\nDuckDB took {large['gigabytes']:.1f} GB in all and {1e9 * large['disk'] / large['edges']:.1f} bytes an "
        f"edge on disk for {large['nodes']:.0e} nodes and {large['edges']:.1e} edges.\n"
    )


def stored(records: dict[str, Any]) -> None:
    """The records, the page and the chart of them."""
    RECORDS.write_text(json.dumps(records, indent=1) + "\n")
    found = records.get("sums")
    rows = {name: one for name, one in records.items() if name != "sums"}
    text = INTRODUCTION + page(rows) + "\n![time and memory by edges](scale.svg)\n"
    if found is not None:
        text += (
            f"\nOne sum of {HIDDEN} columns over {found['nodes'] * DEGREE:.1e} edges (`--sums`): by SQL in 4 GB "
            f"{found['sql']:.0f} s; over edges in files {found['files']:.1f} s, and {found['sorting']:.1f} s to sort "
            "these once. Both in one process, at whatever load there was.\n"
        )
    PAGE.write_text(text + growth(rows) + on_paper(rows), encoding="utf-8")
    if rows:
        draw_chart(rows)


if __name__ == "__main__":
    main()
