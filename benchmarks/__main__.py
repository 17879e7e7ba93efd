"""`python -m benchmarks [--quick]`: plain and gnnsafe in turns; writes results.md, results.json and growth.svg."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")  # PyG's own, while it is imported

import torch  # noqa: E402

from benchmarks import cases, measures, memory, timing  # noqa: E402
from benchmarks.measures import Row  # noqa: E402
from benchmarks.timing import Machine, count_cpu_time, machine  # noqa: E402

FOLDER = Path(__file__).parent
THREADS = 2


def measurements(limits: Machine, *, quick: bool) -> Iterator[Callable[[], Iterator[Row]]]:
    """All that fill the table, in its order."""
    budget = 1.0 if quick else 10.0
    for name in cases.SHAPES:

        def both(name: str = name) -> Iterator[Row]:
            case = cases.case(name)
            yield from measures.training(case, limits, budget)
            yield from measures.scoring(case, limits, budget)

        yield both
    yield partial(measures.backbones, budget)
    for nodes in (10**4, 10**5, 10**6) if quick else (10**4, 10**5, 10**6, 10**7):
        yield partial(measures.propagation, nodes, limits, budget)
    yield partial(measures.detection, budget)
    yield partial(measures.cell, 10 if quick else 50)


def grown(*, quick: bool) -> list[dict[str, float]]:
    """Time and memory from 1e5 edges on."""
    sizes = (10**5, 10**6) if quick else (10**5, 10**6, 10**7, 15 * 10**7)
    lines = []
    for edges in sizes:
        lines.append({"edges": edges, **memory.growth(edges, train=edges <= 10**7)})
        print(f"  {edges:.0e} edges: {lines[-1]}", flush=True)
    return lines


def number(value: float | None, digits: int = 3) -> str:
    """Milliseconds and ratios with three digits."""
    return "–" if value is None else f"{value:.{digits}g}" if value < 1000 else f"{value:.0f}"


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| | | plain, ms | gnnsafe, ms | × plain | wanted | bound, ms | × bound | |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        wanted = "–" if row.target is None else f"≥ {row.target}{'' if row.ratio >= row.target else ' ✗'}"
        bound, distance = (None, None) if row.bound is None else (1e3 * row.bound, row.ours / row.bound)
        milliseconds = [None if value is None else 1e3 * value for value in (row.plain, row.ours)]
        cells = [
            row.what,
            row.where,
            *map(number, milliseconds),
            number(row.ratio),
            wanted,
            number(bound),
            number(distance),
        ]
        lines.append(f"| {' | '.join([*cells, row.note])} |")
    return "\n".join(lines)


def page(rows: list[Row], peaks: dict[str, Any], lines: list[dict[str, float]], limits: Machine, *, quick: bool) -> str:
    """results.md."""
    plain, ours = peaks["plain"], peaks["ours"]
    growth = "\n".join(
        f"| {line['edges']:.2g} | {number(1e3 * line['first'])} | {number(line['memory'] / 1e6)} | "
        f"{number(1e3 * line['propagation'])} | "
        f"{number(1e3 * line['training step']) if 'training step' in line else '–'} |"
        for line in lines
    )
    machine_line = f"memory {limits.bandwidth / 1e9:.0f} GB/s, {limits.flops / 1e9:.0f} GFLOP/s float32"
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    shares = [ours[key] / plain[key] for key in ("peak", "beyond imports")]
    sizes = [f"{way[key] / 1e6:.0f}" for way in (plain, ours) for key in ("peak", "beyond imports")]
    return f"""# Speed and memory, measured by `make benchmark`{" (--quick: too short to quote)" if quick else ""}

{when}, {_threads()}, {platform.processor() or platform.machine()}, torch {torch.__version__}, {machine_line}.
Plain and gnnsafe take turns in one process; medians. Plain is PyG's layers on `edge_index` with dense features, nothing
remembered; a step is one of training and its validation pass. Ours reads bags of words as CSR where the graph is
prepared (`gnnsafe.prepare`); a first call is one on bare data, of which nothing is known yet. The bound moves every
operand once at the measured bandwidth, or multiplies at the measured rate, whichever takes longer.

{table(rows)}

Peak memory of {memory.EPOCHS} training steps on CS, each way in a process of its own, in MB (beyond imported packages):
plain {sizes[0]} ({sizes[1]}), gnnsafe {sizes[2]} ({sizes[3]}), which is {shares[0]:.2f} ({shares[1]:.2f}) of plain.

Growth with edges, 15 per node (32 dense features where a GCN is trained):

| edges | propagation K=2, first call, ms | its memory beyond the graph, MB | prepared, ms | training step, ms |
|--:|--:|--:|--:|--:|
{growth}

![growth](growth.svg)
"""


def _threads() -> str:
    return f"{torch.get_num_threads()} threads" if timing.clock is time.perf_counter else "CPU time of one thread"


def chart(lines: list[dict[str, float]], folder: Path) -> None:
    """Time and memory against edges, both axes logarithmic."""
    try:
        import altair as alt
    except ImportError:
        print("  no chart: pip install 'gnnsafe[report]'")
        return
    names = {"first": "first call", "propagation": "propagation, K=2", "training step": "training step"}
    times = [
        {"edges": line["edges"], "seconds": line[key], "what": label}
        for line in lines
        for key, label in names.items()
        if key in line
    ]
    x = alt.X("edges:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format=".0e"))
    left = alt.Chart(alt.Data(values=times)).mark_line(point=True)
    left = left.encode(
        x=x,
        y=alt.Y("seconds:Q", scale=alt.Scale(type="log")),
        color=alt.Color("what:N", title=None, legend=alt.Legend(orient="top")),
    )
    memories = [{"edges": line["edges"], "megabytes": line["memory"] / 1e6} for line in lines]
    right = alt.Chart(alt.Data(values=memories)).mark_line(point=True)
    right = right.encode(x=x, y=alt.Y("megabytes:Q", scale=alt.Scale(type="log"), title="MB beyond the graph"))
    (left | right).save(str(folder / "growth.svg"))


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute or two, too short to quote")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results.md and results.json go")
    parser.add_argument("--busy", action="store_true", help="one thread, CPU time: for a machine that others use")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    if arguments.busy:
        count_cpu_time()
    start, limits = time.perf_counter(), machine()
    print(f"memory {limits.bandwidth / 1e9:.1f} GB/s, {limits.flops / 1e9:.0f} GFLOP/s", flush=True)
    rows: list[Row] = []
    for measurement in measurements(limits, quick=arguments.quick):
        for row in measurement():
            rows.append(row)
            against = "" if row.ratio is None else f", plain {1e3 * row.plain:.2f} ms, {row.ratio:.1f} times"
            print(
                f"[{time.perf_counter() - start:4.0f} s] {row.what}, {row.where}: {1e3 * row.ours:.2f} ms{against}",
                flush=True,
            )
    peaks = memory.peaks("CS")
    print(f"[{time.perf_counter() - start:4.0f} s] peak memory on CS: {peaks}", flush=True)
    lines = grown(quick=arguments.quick)
    record = {
        "machine": limits._asdict(),
        "threads": _threads(),
        "quick": arguments.quick,
        "torch": torch.__version__,
        "rows": [{**asdict(row), "ratio": row.ratio, "target": row.target} for row in rows],
        "memory": peaks,
        "growth": lines,
    }
    (arguments.folder / "results.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    (arguments.folder / "results.md").write_text(
        page(rows, peaks, lines, limits, quick=arguments.quick), encoding="utf-8"
    )
    chart(lines, arguments.folder)
    missed = [f"{row.what} ({row.where})" for row in rows if row.target and row.ratio < row.target]
    print(f"{time.perf_counter() - start:.0f} s; below what is wanted: {', '.join(missed) or 'nothing'}")


if __name__ == "__main__":
    sys.exit(main())
