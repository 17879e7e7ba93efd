"""What `gnnsafe score` and `gnnsafe score-logits` share: which engine, what is asked of it, and what it said."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnsafe.cli.options import place, terminal
from gnnsafe.errors import InputError, require
from gnnsafe.report.decisions import histogram_table, periods_table

if TYPE_CHECKING:  # they need pyarrow, which what is scored in memory may do without
    from gnnsafe.engines import Asked, Summary
    from gnnsafe.engines.engine import Engine

__all__ = ["ENGINES", "add_engine_options", "asked_of", "listed_nodes", "opened", "show", "summary_lines"]

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
    group.add_argument("--temp", metavar="FOLDER", type=place, help="where tables are stored for the time being, "
                       "removed at the end (default: beside --out)")  # fmt: skip
    group.add_argument("--master", metavar="URL", type=place, help="with spark: spark://host:port, yarn, local[N] "
                       "(default: that of spark-submit, or all cores)")  # fmt: skip
    group.add_argument("--conf", metavar="K=V", type=setting, action="append", default=[], help="with spark: a setting")


def opened(arguments: argparse.Namespace) -> Engine:
    """The engine that the options name."""
    from gnnsafe.engines import DuckDB, Spark
    from gnnsafe.engines.sources import is_remote

    out, name = str(arguments.out), arguments.engine
    for option, owner in (("memory", "duckdb"), ("master", "spark"), ("conf", "spark")):
        given = getattr(arguments, option)
        require(not given or name == owner, f"--{option}", f"be given with --engine {owner}", f"--engine {name}")
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


def summary_lines(nodes: int, flagged: int, false_alarm: float | None, fdr: float | None) -> list[str]:
    """How many nodes are flagged, and what that promises."""
    lead = f"{nodes:,} nodes, {flagged:,} flagged ({flagged / nodes:.1%})"
    if fdr is not None:
        return [lead, f"expected false alarms: at most {fdr:g} of those flagged, {fdr * flagged:,.0f}"]
    assert false_alarm is not None
    most = f"{false_alarm:g} of the ID nodes, {false_alarm * nodes:,.0f} if all are ID"
    return [lead, f"expected false alarms: at most {most}"]


def show(said: Summary, lines: list[str]) -> None:
    """What an engine said of all nodes together, as `gnnsafe score` prints it."""
    from gnnsafe.engines.sources import is_remote

    console = terminal()
    console.print("\n".join(lines), soft_wrap=True)
    if said.periods is not None:
        console.print(periods_table(said.periods))
    console.print(histogram_table(said.edges, said.every, said.marked))
    where = said.out if is_remote(said.out) else Path(said.out).absolute()
    console.print(f"Parts: {where}", soft_wrap=True)
