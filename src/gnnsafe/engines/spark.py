"""A cluster, or one machine as one: Spark joins, sums and stores; functions of rows run in Arrow batches."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from gnnsafe import errors
from gnnsafe.engines.batches import arrow_table, feature_rows
from gnnsafe.engines.cluster import Storage, beside, check_java, check_master, pandas_unmentioned, started
from gnnsafe.engines.engine import COMING, COUNTS, LEAVING, Block, Column, Engine, Function, Step
from gnnsafe.engines.inputs import FeatureColumns, GraphTables
from gnnsafe.engines.numbering import check_ids, unknown_ends
from gnnsafe.engines.sources import check_there, is_delta, is_remote
from gnnsafe.engines.stages import run
from gnnsafe.engines.workspace import FULL
from gnnsafe.errors import InputError, MissingExtraError, require

__all__ = ["Spark"]

TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "int64": "BIGINT"}
CAUSE = re.compile(r"Caused by|[\w.]*(Error|Exception): ")
OURS = re.compile(r"gnnsafe\.errors\.(\w+): (.+)")
LACKS = re.compile(r"No module named '[\w.]+'")


@dataclass(frozen=True)
class Frame:
    """A table: a view in SQL whose columns are `id`, the counts, and value_0, value_1, … of every matrix column."""

    view: str
    columns: Mapping[str, Column]


class Spark(Engine):
    """A Spark cluster: that of a session, or one that is started here.

        with gnnsafe.engines.Spark(spark) as engine:
            gnnsafe.engines.score(engine, detector, spark.table("nodes"), spark.table("edges"), out="s3://…/scores")

    Args:
        session: The session to use, left as it is; by default the one of spark-submit, or a new one.
        master: For a new session, such as "spark://host:7077"; by default all cores of this machine.
        conf: Further settings of a new session.
        temp: Where tables are stored temporarily, a place that all machines see; by default the current
            folder, which does for one machine.

    Raises:
        InputError: A session is given together with settings of a new one.
        MissingExtraError: pyspark is not installed (when it is entered).
    """

    name = "spark"

    def __init__(
        self,
        session: Any = None,
        *,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        temp: str | os.PathLike[str] | None = None,
    ) -> None:
        require(session is None or (master is None and not conf), "session", "be given without master and conf", master)
        self._session, self._master, self._conf = session, master, dict(conf or {})
        self.temp = str(temp) if temp is not None else "."
        self._stack = ExitStack()

    def __enter__(self) -> Spark:
        try:
            from py4j.protocol import Py4JError
            from pyspark.errors import PySparkException
        except ImportError as error:
            raise MissingExtraError(f"the engine spark needs {error.name}: pip install 'gnnsafe[spark]'") from error
        self._errors = (PySparkException, Py4JError)
        with self._stack:
            self._open()
            self._stack = self._stack.pop_all()  # all went well: it is closed at the end, not here
        self.entered = True
        return self

    def _open(self) -> None:
        self._stack.enter_context(pandas_unmentioned())
        if self._session is None:
            check_java()
            check_master(self._master)
            self.session = self._stack.enter_context(started(self._master, self._conf, self.temp))
        else:
            self.session = self._session
        self.spark = beside(self.session)
        self.storage = self._stack.enter_context(Storage(self.spark, self.temp))
        self._made = 0

    def __exit__(self, *error: object) -> None:
        self.entered = False
        self._stack.close()

    def check_out(self, out: str) -> None:
        """Also at an address."""
        if is_remote(out):
            with self._one_line(out):
                self.storage.check_absent(out)
        else:
            super().check_out(out)

    def view(self, name: str, source: Any) -> Any:
        """Name a user's table in SQL."""
        from pyspark.sql.pandas.types import to_arrow_schema

        with self._one_line(source if isinstance(source, str) else name):
            path = isinstance(source, str | os.PathLike)
            frame = self._frame_from(str(source)) if path else self._frame(name.removeprefix("given_"), source)
            self._named(name, frame)
            return to_arrow_schema(frame.schema, timezone="UTC")

    def _frame_from(self, path: str) -> Any:
        check_there(path)
        where = path if is_remote(path) else Path(path).absolute().as_posix()
        folder = Path(path).is_dir()
        reader = self.spark.read.format("delta" if is_delta(path) else "parquet")
        return reader.option("recursiveFileLookup", str(folder and not is_delta(path)).lower()).load(where)

    def _frame(self, name: str, source: Any) -> Any:
        """A table in memory, or a data frame of the user's session, which ours sees by a global name."""
        if not hasattr(source, "sparkSession"):
            return self.spark.createDataFrame(arrow_table(name, source))
        view = f"gnnsafe_{secrets.token_hex(8)}"
        source.createGlobalTempView(view)
        self._stack.callback(source.sparkSession.catalog.dropGlobalTempView, view)
        return self.spark.table(f"global_temp.{view}")

    def _named(self, name: str, frame: Any) -> None:
        frame.createOrReplaceTempView(name)

    def quoted(self, name: str) -> str:
        """In backticks."""
        return "`" + name.replace("`", "``") + "`"

    def seconds(self, column: str, *, zoned: bool) -> str:
        """In the session's time zone, which is UTC in ours."""
        return f"CAST(CAST({column} AS TIMESTAMP) AS DOUBLE)"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Those of an aggregate."""
        with self._one_line("the query"):
            return [tuple(row) for row in self.spark.sql(sql).collect()]

    def small(self, name: str, table: Any) -> None:
        """As a table of its own."""
        self._named(name, self.spark.createDataFrame(table))

    def create(self, name: str, sql: str) -> None:
        """As Parquet."""
        with self._one_line(name):
            self._stored(name, self.spark.sql(sql))

    def _stored(self, name: str, frame: Any) -> None:
        """Written and read again: what made it is forgotten, so that a step costs no more than the one before."""
        path = self.storage.path(name)
        frame.write.mode("overwrite").parquet(path)  # there is one of a graph before, or none
        self._named(name, self.spark.read.schema(frame.schema).parquet(path))

    def read(self, graph: GraphTables, step: Step, *, width: int, leaving: bool) -> Frame:
        """The nodes' features through the step, beside how many edges point to each."""
        with self._one_line(graph.rows.name):
            self._named("ids", self.spark.sql(f"SELECT id FROM ({graph.nodes}) AS nodes"))
            check_ids(self, graph)
            self._edges(graph)
            self._counts = (*COUNTS, LEAVING, COMING) if leaving else COUNTS
            self._times = graph.times
            degrees = self.spark.sql(_counting(graph.nodes, leaving=leaving))
            if graph.times:
                self._stored("moments", self.spark.sql(f"SELECT id, moment FROM ({graph.nodes}) AS nodes"))
            read = partial(_features, graph.rows, step)
            return self._mapped(degrees, read, step.makes, {})

    def silence(self, table: Frame, column: str, least: int) -> Frame:
        """The edges that are left and their counts are stored."""
        with self._one_line("the plan"):
            silent = f"(SELECT id FROM {table.view} WHERE {column}_0 >= {least}) AS s ON e.source = s.id"
            heard = f"LEFT JOIN {silent} WHERE s.id IS NULL OR e.source = e.target"
            self.create("heard_edges", f"SELECT e.source, e.target FROM all_edges AS e {heard}")
            self._named("all_edges", self.spark.table("heard_edges"))
            counts = "SELECT target, count(*) AS heard FROM all_edges WHERE source <> target GROUP BY target"
            names = ", ".join(f"t.{name}" for name in self.spark.table(table.view).columns if name != "count")
            query = f"SELECT {names}, COALESCE(h.heard, 0) AS count FROM {table.view} AS t LEFT JOIN ({counts}) AS h"
            self._made += 1
            view = f"step{self._made}"
            self._stored(view, self.spark.sql(f"{query} ON t.id = h.target"))
            self.storage.remove(table.view)
            return Frame(view, table.columns)

    def _edges(self, graph: GraphTables) -> None:
        ((total,),) = self.rows(f"SELECT count(*) FROM ({graph.edges}) AS e")
        require(total > 0, "edges", "have at least one row", "none", "check what wrote the table")
        known = (
            "EXISTS (SELECT 1 FROM ids WHERE ids.id = e.source) AND EXISTS (SELECT 1 FROM ids WHERE ids.id = e.target)"
        )
        ((found,),) = self.rows(f"SELECT count(*) FROM ({graph.edges}) AS e WHERE {known}")
        if found < total and (found == 0 or not graph.drop_unknown):
            raise unknown_ends(self, graph, total - found, total)
        edges = graph.edges if found == total else f"SELECT * FROM ({graph.edges}) AS e WHERE {known}"
        if graph.both_ways:
            edges = f"SELECT source, target FROM ({edges}) AS e UNION SELECT target, source FROM ({edges}) AS e"
        if graph.both_ways or found < total:
            self.create("all_edges", edges)
        else:
            self._named("all_edges", self.spark.sql(edges))

    def after(self, table: Frame, step: Step) -> Frame:
        """One job: the sums where the step aggregates, its function, and the result stored."""
        with self._one_line("the plan"):
            query = _with_sums(table) if step.aggregates else f"SELECT * FROM {table.view}"
            before = {**table.columns, **({"aggregated": table.columns["value"]} if step.aggregates else {})}
            kept = {name: table.columns[name] for name in step.keeps}
            function = partial(_rows, step.function, before, self._counts)
            result = self._mapped(self.spark.sql(query), function, step.makes, kept)
            self.storage.remove(table.view)
            return result

    def _mapped(self, frame: Any, function: Any, makes: Mapping[str, Column], kept: Mapping[str, Column]) -> Frame:
        self._made += 1
        columns = {**makes, **kept}
        id_type = frame.schema["id"].dataType.simpleString()
        fields = [f"id {id_type}", *(f"{name} BIGINT" for name in self._counts)]
        fields += [f"{part} {TYPES[column.dtype]}" for name, column in columns.items() for part in _parts(name, column)]
        view = f"step{self._made}"
        result = frame.mapInArrow(partial(_batches, function, columns, self._counts), ", ".join(fields))
        self._stored(view, result)
        return Frame(view, columns)

    def total(self, table: Frame, function: Function) -> torch.Tensor:
        """A sum in each task, then of these."""
        with self._one_line("the plan"):
            totals = partial(_totals, function, table.columns, self._counts)
            self._named("totals", self.spark.table(table.view).mapInArrow(totals, "place INT, total DOUBLE"))
            found = self.rows("SELECT place, sum(total) FROM totals GROUP BY place ORDER BY place")
            return torch.tensor([value for _, value in found], dtype=torch.float64)

    def name_rows(self, name: str, table: Frame) -> None:
        """The columns by their names; times beside them, where there are such."""
        single = ", ".join(f"t.{part} AS {column}" for column in table.columns for part in [f"{column}_0"])
        times, join = (", m.moment", "JOIN moments AS m ON t.id = m.id") if self._times else ("", "")
        self._named(name, self.spark.sql(f"SELECT t.id, {single}{times} FROM {table.view} AS t {join}"))

    def write(self, sql: str, out: str) -> None:
        """A part per task."""
        with self._one_line(out), self.storage.published(out) as path:
            self.spark.sql(sql).write.mode("overwrite").parquet(path)

    @contextmanager
    def _one_line(self, source: object) -> Iterator[None]:
        """What Spark complains of, here or in a worker, as an error of gnnsafe."""
        try:
            yield
        except self._errors as error:
            text = str(error)
            if found := OURS.search(text):
                kind = getattr(errors, found[1], InputError)
                raise kind(found[2].strip()) from error
            if lacks := LACKS.search(text):
                remedy = f"start the session with PYSPARK_PYTHON set to one that has, as {sys.executable} here"
                raise InputError(f"'session' must have workers with gnnsafe (got {lacks[0]}); {remedy}") from error
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            told = [line for line in lines if CAUSE.match(line)]
            reason = told[-1] if told else lines[0]
            full = any(os.strerror(code) in reason for code in FULL)
            remedy = "; name folders on a larger disk (--temp, --out)" if full else ""
            raise InputError(f"'{source}' cannot be read or stored by spark ({reason[:300]}){remedy}") from error


def _parts(name: str, column: Column) -> list[str]:
    return [f"{name}_{place}" for place in range(column.width)]


def _counting(nodes: str, *, leaving: bool) -> str:
    """SQL: the nodes, with how many edges point to each from others, from itself, and leave it for others."""
    text = (
        f"SELECT nodes.*, COALESCE(d.count, 0) AS count, COALESCE(d.loops, 0) AS loops FROM ({nodes}) AS nodes "
        "LEFT JOIN (SELECT target, sum(CASE WHEN source = target THEN 0 ELSE 1 END) AS count, "
        "sum(CASE WHEN source = target THEN 1 ELSE 0 END) AS loops FROM all_edges GROUP BY target) AS d "
        "ON nodes.id = d.target"
    )
    if not leaving:
        return text
    return (
        f"SELECT n.*, COALESCE(o.leaving, 0) AS {LEAVING}, n.count AS {COMING} FROM ({text}) AS n LEFT JOIN "
        "(SELECT source, count(*) AS leaving FROM all_edges WHERE source <> target GROUP BY source) AS o "
        "ON n.id = o.source"
    )


def _with_sums(table: Frame) -> str:
    """SQL: each row with the sums of `value` over the edges from other nodes."""
    values = _parts("value", table.columns["value"])
    sums = ", ".join(f"sum(s.{value}) AS {value}" for value in values)
    aggregated = ", ".join(f"COALESCE(m.{value}, 0) AS aggregated{value.removeprefix('value')}" for value in values)
    return (
        f"SELECT n.*, {aggregated} FROM {table.view} AS n LEFT JOIN (SELECT e.target, {sums} FROM all_edges AS e "
        f"JOIN {table.view} AS s ON e.source = s.id WHERE e.source <> e.target GROUP BY e.target) AS m "
        "ON n.id = m.target"
    )


def _batches(
    function: Any, columns: Mapping[str, Column], counts: Sequence[str], batches: Iterable[Any]
) -> Iterator[Any]:
    """In a worker: each batch through the function, as a batch again."""
    torch.set_num_threads(1)
    for batch in batches:
        made = function(batch)
        names = ["id", *counts]
        arrays = [batch.column(name) for name in names]
        for name, column in columns.items():
            for place, part in enumerate(_parts(name, column)):
                values = made[name][:, place] if name in made else None
                arrays.append(
                    batch.column(part) if values is None
                    else pa.array(values.contiguous().numpy().astype(column.dtype, copy=False))
                )  # fmt: skip
                names.append(part)
        yield pa.RecordBatch.from_arrays(arrays, names)


def _features(rows: FeatureColumns, step: Step, batch: Any) -> dict[str, torch.Tensor]:
    return run(step.function, {"value": feature_rows(batch, rows)})


def _totals(
    function: Function, columns: Mapping[str, Column], counts: Sequence[str], batches: Iterable[Any]
) -> Iterator[Any]:
    """In a worker: what the function makes of each batch, summed."""
    torch.set_num_threads(1)
    totals = [_rows(function, columns, counts, batch)["total"].double() for batch in batches]
    if totals:
        total = torch.stack(totals).sum(dim=0).numpy()
        yield pa.RecordBatch.from_arrays([pa.array(range(len(total)), pa.int32()), pa.array(total)], ["place", "total"])


def _rows(
    function: Function, columns: Mapping[str, Column], counts: Sequence[str], batch: Any
) -> dict[str, torch.Tensor]:
    block: dict[str, torch.Tensor] = {name: _matrix(batch, [name], "int64") for name in counts}
    for name, column in columns.items():
        block[name] = _matrix(batch, _parts(name, column), column.dtype)
    result: Block = run(function, block)
    return dict(result)


def _matrix(batch: Any, parts: list[str], dtype: str) -> torch.Tensor:
    matrix = np.empty((batch.num_rows, len(parts)), dtype=dtype)
    for place, part in enumerate(parts):
        matrix[:, place] = batch.column(part).to_numpy(zero_copy_only=False)
    return torch.from_numpy(matrix)
