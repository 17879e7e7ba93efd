"""What `gnnsafe score` and `gnnsafe score-logits` share: which engine, what is asked of it, and what it said."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnsafe.cli.options import place
from gnnsafe.cli.output import Answer
from gnnsafe.errors import InputError, require
from gnnsafe.report.decisions import Summary

if TYPE_CHECKING:  # they need pyarrow, which what is scored in memory may do without
    from gnnsafe.engines import Asked
    from gnnsafe.engines.engine import Engine

__all__ = [
    "ENGINES",
    "add_engine_options",
    "asked_of",
    "check_engine_options",
    "engine_answer",
    "listed_nodes",
    "opened",
    "said_figures",
    "said_lines",
]

ENGINES = ("memory", "duckdb", "spark")


def setting(text: str) -> tuple[str, str]:
    """A setting of Spark's, k=v."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be name=value (got {text!r})")
    return name, value


def add_engine_options(parser: Any, engines: tuple[str, ...]) -> None:
    """Which engine, and what it may take."""
    group = parser.add_argument_group("engines", "for graphs beyond memory: Parquet in, a folder of Parquet parts out")
    words = "|".join(engines)
    group.add_argument("--engine", choices=engines, default=engines[0], metavar=words, help=f"(default: {engines[0]})")
    group.add_argument("--memory", metavar="SIZE", type=place, help="with duckdb: what it may take, such as 4GB")
    group.add_argument("--temp", metavar="FOLDER", type=place, help="where tables are stored temporarily, "
                       "removed at the end (default: beside --out)")  # fmt: skip
    group.add_argument("--master", metavar="URL", type=place, help="with spark: spark://host:port, yarn, local[N] "
                       "(default: that of spark-submit, or all cores)")  # fmt: skip
    group.add_argument("--conf", metavar="K=V", type=setting, action="append", default=[], help="with spark: a setting")


def check_engine_options(arguments: argparse.Namespace) -> None:
    """No option is given that the engine would not heed."""
    name, out = arguments.engine, str(arguments.out)
    owners = {"memory": ("duckdb",), "master": ("spark",), "conf": ("spark",), "temp": ("duckdb", "spark")}
    for option, engines in owners.items():
        heeded = not getattr(arguments, option) or name in engines
        require(heeded, f"--{option}", f"be given with --engine {' or '.join(engines)}", f"--engine {name}")
    require("://" not in out or name == "spark", "--out", "be on this machine, but with --engine spark", f"'{out}'")


def opened(arguments: argparse.Namespace, *tables: str) -> Engine:
    """The engine that the options name, not started: what is wrong with tables and output is said before."""
    from gnnsafe.engines import DuckDB, Spark
    from gnnsafe.engines.sources import check_there, is_remote
    from gnnsafe.engines.workspace import check_absent

    check_engine_options(arguments)
    out, name = str(arguments.out), arguments.engine
    if not is_remote(out):
        check_absent(Path(out))
    for table in tables:
        check_there(table)
    beside = out.rstrip("/").rpartition("/")[0] if is_remote(out) else str(Path(out).absolute().parent)
    temp = arguments.temp or beside
    if name == "duckdb":
        return DuckDB(memory=arguments.memory, temp=temp)
    return Spark(master=arguments.master, conf=dict(arguments.conf), temp=temp)


def asked_of(arguments: argparse.Namespace, *, default: float) -> Asked:
    """The level, and about which nodes."""
    from gnnsafe.engines import Asked

    level = None if arguments.fdr else arguments.false_alarm or default
    nodes = None if arguments.nodes is None else listed_nodes(arguments.nodes)
    return Asked(level, arguments.fdr, arguments.storey, nodes)


def listed_nodes(file: Path) -> list[str]:
    """The ids in a text file, one per line."""
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"'--nodes' must be a text in UTF-8 (got '{file}')") from error
    except OSError as error:
        raise InputError(f"'--nodes' must be a text file (got '{file}': {error.strerror})") from error
    asked = [line for line in lines if line]
    require(bool(asked), "--nodes", "hold at least one id", f"the empty '{file}'")
    return asked


def said_figures(said: Summary, false_alarm: float | None, fdr: float | None) -> dict[str, Any]:
    """A summary of all nodes, and how many of the flagged ones may be false alarms."""
    expected = (false_alarm or 0) * said.nodes if fdr is None else fdr * said.flagged
    return {**said.to_dict(), "false_alarm": false_alarm, "fdr": fdr, "expected_false_alarms": expected}


def said_lines(figures: Mapping[str, Any]) -> list[str]:
    """The same in words, except for the histogram and what changed over time."""
    nodes, flagged, expected = (figures[name] for name in ("nodes", "flagged", "expected_false_alarms"))
    share, fdr = figures["false_alarm"], figures["fdr"]
    most = (
        f"{fdr:g} of those flagged, {expected:,.0f}"
        if fdr
        else f"{share:g} of the ID nodes, {expected:,.0f} if all are ID"
    )
    return [f"{nodes:,} nodes, {flagged:,} flagged ({flagged / nodes:.1%})", f"expected false alarms: at most {most}"]


def engine_answer(said: Summary, asked: Asked) -> Answer:
    """An engine's summary of all nodes, as `gnnsafe score` says it."""
    from gnnsafe.engines.sources import is_remote

    figures = said_figures(said, asked.false_alarm, asked.fdr)
    out = said.out if is_remote(said.out) else Path(said.out)
    return Answer([*said_lines(figures), *said.over_time(), said.histogram()], figures, [("Parts", out)])
