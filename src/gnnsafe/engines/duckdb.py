"""One machine, graphs beyond memory: DuckDB reads, matches ids, aggregates and writes; sums go over edges in files."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from gnnsafe.engines.batches import arrow_table, feature_rows
from gnnsafe.engines.columns import ColumnFile, Writer, arrow_rows, spans
from gnnsafe.engines.engine import Column, Engine, Function, Step
from gnnsafe.engines.grid import EdgeGrid, GridWriter
from gnnsafe.engines.inputs import GraphTables
from gnnsafe.engines.numbering import Numbering, numbered, unknown_ends
from gnnsafe.engines.sources import is_delta, parquet_files, scan, sized
from gnnsafe.engines.stages import run
from gnnsafe.engines.workspace import FULL, published, workspace
from gnnsafe.errors import InputError, MissingExtraError, require, require_whole
from gnnsafe.progress import progress

__all__ = ["DuckDB"]

BATCH = 2**17  # rows of nodes at once
EDGES = 2**20
OWN = 2**29  # bytes that Python and torch take by themselves
LEAST = 2**28  # that DuckDB needs
LARGER = "name a folder on a larger disk (--temp)"


@dataclass(frozen=True)
class FileTable:
    """A table: its columns as files."""

    files: dict[str, ColumnFile]


class DuckDB(Engine):
    """One machine: memory is bounded, the disk takes the rest.

        with gnnsafe.engines.DuckDB(memory="4GB") as engine:
            gnnsafe.engines.score(engine, detector, "lake/nodes/", "lake/edges/", out="scores/")

    Args:
        memory: What the process may take, such as "4GB"; by default half of what is free.
        threads: How many; by default one per core.
        temp: Where to store temporary files; by default beside the output.

    Raises:
        InputError: `memory` or `threads` breaks its rule.
        MissingExtraError: duckdb is not installed (when it is entered).
    """

    name = "duckdb"

    def __init__(
        self, *, memory: str | int | None = None, threads: int | None = None, temp: str | os.PathLike[str] | None = None
    ) -> None:
        if threads is not None:
            require_whole("threads", threads, 1)
        self.memory, self.threads = sized(memory), threads or os.cpu_count() or 1
        self.temp = Path(temp) if temp is not None else None
        self._stack = ExitStack()

    def __enter__(self) -> DuckDB:
        try:
            import duckdb
        except ImportError as error:
            raise MissingExtraError(f"the engine duckdb needs {error.name}: pip install 'gnnsafe[duckdb]'") from error
        self._errors = duckdb.Error
        with self._stack:
            self._open(duckdb)
            self._stack = self._stack.pop_all()  # all went well: it is closed at the end, not here
        self.entered = True
        return self

    def _open(self, duckdb: Any) -> None:
        self.folder = self._stack.enter_context(workspace(self.temp if self.temp is not None else Path()))
        self._threads = torch.get_num_threads()
        self._stack.callback(torch.set_num_threads, self._threads)
        torch.set_num_threads(self.threads)
        self._connection = duckdb.connect()
        self._stack.callback(self._connection.close)
        limit = max(LEAST, (self.memory - OWN) // 2)
        for setting in (
            f"SET memory_limit='{limit // 2**20}MiB'",
            f"SET threads={self.threads}",
            f"SET temp_directory='{self.folder / 'duckdb'}'",
            "SET preserve_insertion_order=false",
            "SET enable_progress_bar=false",
        ):
            self._connection.execute(setting)
        self._made = 0

    def __exit__(self, *error: object) -> None:
        self.entered = False
        self._stack.close()

    def view(self, name: str, source: Any) -> Any:
        """Name a user's table in SQL."""
        with self._one_line(source):
            if isinstance(source, str | os.PathLike):
                self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM {scan(str(source))}")
            else:
                self._connection.execute(f"DROP VIEW IF EXISTS {name}")
                self._connection.register(name, arrow_table(name.removeprefix("given_"), source))
            return self._query(f"SELECT * FROM {name} LIMIT 0").to_arrow_table().schema

    def halves(self, source: Any) -> set[str]:
        """In Parquet files, which say what DuckDB does not; in a table in memory it refuses them."""
        if not isinstance(source, str | os.PathLike) or is_delta(str(source)):
            return set()
        found = f"SELECT name FROM parquet_schema({parquet_files(str(source))}) WHERE logical_type = 'Float16Type()'"
        return {name for (name,) in self.rows(found)}

    def quoted(self, name: str) -> str:
        """In double quotes."""
        return '"' + name.replace('"', '""') + '"'

    def seconds(self, column: str, *, zoned: bool) -> str:
        """By `epoch`."""
        return f"epoch({column if zoned else f'CAST({column} AS TIMESTAMP)'})"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Those of an aggregate."""
        with self._one_line("the query"):
            found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
            return found

    def small(self, name: str, table: Any) -> None:
        """Registered as it is."""
        self._connection.register(name, table)

    def create(self, name: str, sql: str) -> None:
        """As a Parquet file."""
        path = self.folder / f"{name}.parquet"
        with self._one_line(name):
            self._connection.execute(f"COPY ({sql}) TO '{_text(path)}' (FORMAT parquet)")
            self._connection.execute(
                f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM read_parquet('{_text(path)}')"
            )

    def read(self, graph: GraphTables, step: Step, *, width: int, leaving: bool) -> FileTable:
        """The nodes' features through the step, in the order in which they come; then the edges, by these numbers."""
        for file in self.folder.iterdir():  # of a graph before; tables in SQL are written over
            if file.is_file() and file.suffix != ".parquet":
                file.unlink()
        files, nodes = self._nodes(graph, step)
        numbering = numbered(self, graph, nodes)
        self.grid, counts = self._edges(graph, numbering, nodes, width, leaving)
        self.nodes = nodes
        self.counts = self._counted("counts", counts)
        return FileTable(files)

    def silence(self, table: FileTable, column: str, least: int) -> FileTable:
        """By the grid, cell after cell."""
        with self._full_disk():
            silent = table.files[column].rows(0, self.nodes)[:, 0].numpy() >= least
            self.counts = {**self.counts, **self._counted("heard", {"count": self.grid.silence(silent)})}
        return table

    def _counted(self, name: str, counts: dict[str, Any]) -> dict[str, ColumnFile]:
        with self._full_disk(), Writer(self.folder, name, dict.fromkeys(counts, Column(1, "int64"))) as writer:
            for start, stop in spans(self.nodes, BATCH):
                writer.add({name: torch.from_numpy(part[start:stop])[:, None] for name, part in counts.items()})
        return writer.files

    def after(self, table: FileTable, step: Step) -> FileTable:
        """Range of targets after range: sums where the step aggregates, then its function a batch at a time."""
        self._made += 1
        held: dict[int, torch.Tensor] = {}
        with self._full_disk(), Writer(self.folder, f"step{self._made}", step.makes) as writer:
            for low, high in spans(self.nodes, self.grid.targets):
                aggregated = self.grid.sums(table.files["value"], (low, high), held) if step.aggregates else None
                for start, stop in spans(high - low, BATCH):
                    block = self._block(table, low + start, low + stop)
                    if aggregated is not None:
                        block["aggregated"] = aggregated[start:stop]
                    writer.add(run(step.function, block))
        kept = {name: table.files[name] for name in step.keeps}
        for name, file in table.files.items():
            if name not in kept:
                file.path.unlink()
        return FileTable({**writer.files, **kept})

    def total(self, table: FileTable, function: Function) -> torch.Tensor:
        """A batch at a time."""
        blocks = (self._block(table, start, stop) for start, stop in spans(self.nodes, BATCH))
        return torch.stack([run(function, block)["total"].double() for block in blocks]).sum(dim=0)

    def _block(self, table: FileTable, start: int, stop: int) -> dict[str, torch.Tensor]:
        return {name: file.rows(start, stop) for name, file in {**self.counts, **table.files}.items()}

    def name_rows(self, name: str, table: FileTable) -> None:
        """The columns beside the ids, as one Parquet file."""
        ids = parquet.ParquetFile(self.folder / "ids.parquet")
        path, place = self.folder / f"{name}.parquet", 0
        with self._full_disk(), arrow_rows(path) as add:
            for batch in ids.iter_batches(batch_size=BATCH):
                arrays = {field: batch.column(field) for field in batch.schema.names if field != "number"}
                for column, file in table.files.items():
                    arrays[column] = pa.array(file.rows(place, place + batch.num_rows)[:, 0].numpy())
                add(pa.record_batch(list(arrays.values()), list(arrays)))
                place += batch.num_rows
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM read_parquet('{_text(path)}')")

    def write(self, sql: str, out: str) -> None:
        """By one thread: where the disk fills, several make DuckDB 2.0 crash."""
        threads = self.rows("SELECT current_setting('threads')")[0][0]
        with published(Path(out)) as part, self._one_line(out):
            self._connection.execute("SET threads = 1")
            try:
                text = f"COPY ({sql}) TO '{_text(part)}' (FORMAT parquet, PER_THREAD_OUTPUT, OVERWRITE)"
                self._connection.execute(text)
            finally:
                self._connection.execute(f"SET threads = {threads}")

    def batches(self, sql: str, rows: int) -> Iterator[Any]:
        """What a query gives, a batch of Arrow at a time; no other query may run meanwhile."""
        with self._one_line("the table"):
            yield from self._query(sql).to_arrow_reader(rows)

    def _query(self, sql: str) -> Any:
        return self._connection.sql(sql)  # streamed: what `execute` gives would be copied first

    def _nodes(self, graph: GraphTables, step: Step) -> tuple[dict[str, ColumnFile], int]:
        place, path = 0, self.folder / "ids.parquet"
        with self._full_disk(), Writer(self.folder, "nodes", step.makes) as writer, arrow_rows(path) as add:
            for batch in self.batches(graph.nodes, BATCH):
                block = {"value": feature_rows(batch, graph.rows)}
                writer.add(run(step.function, block))
                columns = {"id": batch.column("id"), "number": pa.array(np.arange(place, place + batch.num_rows))}
                if graph.times:
                    columns["moment"] = batch.column("moment")
                add(pa.record_batch(list(columns.values()), list(columns)))
                place += batch.num_rows
        require(place > 0, graph.rows.name, "have at least one row", "none")
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW ids AS SELECT * FROM read_parquet('{_text(path)}')")
        return writer.files, place

    def _edges(
        self, graph: GraphTables, numbering: Numbering, nodes: int, width: int, leaving: bool
    ) -> tuple[EdgeGrid, dict[str, Any]]:
        """The grid: a range of sources or targets takes a quarter of the memory, and so do a cell's edges."""
        (total,) = self.rows(f"SELECT count(*) FROM ({graph.edges}) AS e")[0]
        require(total > 0, "edges", "have at least one row", "none", "check what wrote the table")
        share = max(self.memory - OWN, OWN) // 4
        sources = max(1, min(nodes, share // width, 2**31 - 1))
        cells = max(-(-nodes // sources), -(-(total * (48 if graph.both_ways else 24)) // share))
        ranges = {"targets": -(-nodes // cells), "sources": sources}
        with self._full_disk(), GridWriter(self.folder, nodes, **ranges, both_ways=graph.both_ways) as writer:
            lost = self._fill(writer, numbering)
            if lost and (lost == total or not graph.drop_unknown):
                raise unknown_ends(self, graph, lost, total)
            with progress("Sorting edges", writer.cells) as advance:
                return writer.finish(advance, leaving=leaving)

    def _fill(self, writer: GridWriter, numbering: Numbering) -> int:
        """All edges, and how many of them have an end that is no node."""
        lost = 0
        for batch in self.batches(numbering.sql, EDGES):
            source, target = (numbering.numbers(batch.column(end)) for end in ("source", "target"))
            if (unknown := (source < 0) | (target < 0)).any():
                lost += int(unknown.sum())
                source, target = source[~unknown], target[~unknown]
            writer.add(source, target)
        return lost

    @contextmanager
    def _one_line(self, source: object) -> Iterator[None]:
        """What DuckDB complains of, as an error of gnnsafe."""
        try:
            yield
        except RuntimeError as error:
            if str(error) == "Query interrupted":  # what DuckDB 2.0 makes of Ctrl-C in some queries
                raise KeyboardInterrupt from error
            raise
        except self._errors as error:
            reason = _reason(str(error))
            full = os.strerror(errno.ENOSPC) in reason and str(self.folder) in reason
            remedy = f"; {LARGER}" if full else ""
            raise InputError(f"'{source}' cannot be read or stored by duckdb ({reason}){remedy}") from error

    @contextmanager
    def _full_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in FULL:
                error.filename = error.filename or str(self.folder)
                raise
            got = f"'{self.folder.parent}': {error.strerror}"
            raise InputError(f"'temp' must have room for temporary tables (got {got}); {LARGER}") from error


def _text(path: Path) -> str:
    return str(path).replace("'", "''")


def _reason(text: str) -> str:
    """What DuckDB complains of in one line: without the query, and without the offsets of a write that failed."""
    written = re.search(r'"exception_message":"((?:[^"\\]|\\.)*)"', text)
    reason = written[1].replace('\\"', "'") if written else text.partition("\n\nLINE ")[0]
    return re.sub(r"\s+", " ", reason.strip())[:300]
