"""Graphs out of requests: JSON, or tables in the parts of a form, which are written under generated names and read."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from torch_geometric.data import Data as Graph

from gnnsafe.datasets import read_graph
from gnnsafe.errors import GraphFileError, InputError, require
from gnnsafe.graph import Data
from gnnsafe.service.limits import Limits
from gnnsafe.service.refusal import RefusedError

__all__ = ["MULTIPART", "graph_of_json", "graph_of_tables", "received"]

MULTIPART = "multipart/form-data"
TABLES = ("nodes", "edges")
KEYS = {"x", "edge_index", "node_id"}
COMPRESSION = 3  # the place of this field in Arrow's RecordBatch
MAGIC = {b"PAR1": ".parquet", b"ARRO": ".arrow", b"\xff\xff\xff\xff": ".arrow"}


def graph_of_json(record: Any, limits: Limits) -> Data:
    """A graph out of `x`, `edge_index` and, where they are given, ids of its nodes."""
    known = isinstance(record, dict) and {"x", "edge_index"} <= record.keys() <= KEYS
    got = ", ".join(record) if isinstance(record, dict) else type(record).__name__
    require(known, "graph", "be an object with x, edge_index and, if you like, node_id", got[:80])
    x = _array("x", record["x"], np.float32)
    edge_index = _array("edge_index", record["edge_index"], np.int64)
    require(x.ndim == 2, "x", "be a row of numbers for each node", f"{x.ndim} dimensions")
    edge_index = edge_index.reshape(2, 0) if edge_index.size == 0 else edge_index
    require(edge_index.ndim == 2 and len(edge_index) == 2, "edge_index", "be two rows", list(edge_index.shape))
    limits.check_graph(x.shape[0], edge_index.shape[1])
    data = Graph(x=torch.from_numpy(x), edge_index=torch.from_numpy(edge_index))
    if record.get("node_id") is not None:
        data.node_id = _ids(record["node_id"], len(x))
    return data


def _ids(given: Any, count: int) -> list[str | int]:
    one_type = isinstance(given, list) and len({*map(type, given)}) <= 1
    usable = one_type and all(type(one) in (str, int) for one in given) and len(given) == count
    require(usable, "node_id", f"be {count} texts, or as many whole numbers", repr(given)[:60])
    return given  # type: ignore[no-any-return]


def _array(name: str, given: Any, kind: Any) -> Any:
    require(isinstance(given, list), name, "be a list of lists of numbers", type(given).__name__)
    try:
        values = np.asarray(given)
        fits = values.dtype.kind in ("i" if kind is np.int64 else "if") or values.size == 0
        require(fits, name, "be numbers, all rows as long", str(values.dtype))
        with np.errstate(over="raise"):
            return values.astype(kind)
    except InputError:
        raise
    except (ValueError, OverflowError, FloatingPointError, TypeError) as error:
        raise InputError(f"'{name}' must be numbers, all rows as long ({str(error)[:80]})") from error


async def received(request: Request, pieces: AsyncIterator[bytes]) -> AbstractContextManager[Path]:
    """The tables of a form in a folder of their own, which is gone when the block ends."""
    parser = MultiPartParser(request.headers, pieces, max_files=2, max_fields=0)  # type: ignore[arg-type]
    try:
        form = await parser.parse()
        files: dict[str, Any] = {name: value for name, value in form.items() if hasattr(value, "read")}
        if set(files) != set(TABLES):
            got = ", ".join(files)[:80] or "none"
            raise RefusedError(400, f"the form must have two files, nodes and edges (got {got})")
        contents = {name: await files[name].read() for name in TABLES}
    except (MultiPartException, KeyError, ValueError) as error:  # also where the boundary is missing
        reason = getattr(error, "message", None) or "no boundary"
        raise RefusedError(400, f"the form must have two files, nodes and edges ({reason})") from error
    finally:
        for file in parser._files_to_close_on_error:  # also those of a form that was cut short
            file.close()
    return _folder(contents)


@contextmanager
def _folder(contents: dict[str, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gnnsafe-") as name:
        folder = Path(name)
        for table, content in contents.items():
            ending = MAGIC.get(content[:4], ".csv")
            (folder / f"{table}{ending}").write_bytes(content)
        yield folder


def graph_of_tables(folder: Path, limits: Limits, *, undirected: bool) -> Data:
    """The graph of two tables; an Arrow file is read as Parquet is."""
    for table, most in zip(TABLES, (limits.nodes, limits.edges), strict=True):
        _as_parquet(folder / f"{table}.arrow")
        _check_rows(folder / f"{table}.parquet", table, most)
    try:
        return read_graph(folder, undirected=undirected)
    except GraphFileError as error:
        text = str(error)
        for table in TABLES:  # the client knows neither where it lay nor what it was called there
            text = text.replace(f"{folder}/{table}.csv", f"{table} (read as CSV)")
            text = text.replace(f"{folder}/{table}.parquet", table)
        raise InputError(text.replace(f"{folder}/", "")) from error


def _check_rows(file: Path, table: str, most: int) -> None:
    """What a Parquet file says that it holds, before it is unpacked."""
    if not file.exists():
        return
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows = parquet.read_metadata(file).num_rows
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"'{table}' must be a Parquet file that is whole ({str(error)[:80]})") from error
    if rows > most:
        raise RefusedError(
            413, f"'{table}' must have at most {most:,} rows (got {rows:,}); score it with gnnsafe score"
        )


def _as_parquet(file: Path) -> None:
    if not file.exists():
        return
    import pyarrow as pa
    from pyarrow import parquet

    with file.open("rb") as opened:
        try:
            begins = opened.read(8).startswith(b"ARROW1")
            opened.seek(8 if begins else 0)  # a file is a stream with a head and a foot
            _check_plain(opened.read())
            opened.seek(0)
            table = (pa.ipc.open_file if begins else pa.ipc.open_stream)(opened).read_all()
            table.validate(full=True)
            parquet.write_table(table, file.with_suffix(".parquet"))
        except (OSError, pa.ArrowException, struct.error, IndexError) as error:
            raise InputError(f"'{file.stem}' must be an Arrow file that is whole ({str(error)[:80]})") from error


def _check_plain(content: bytes) -> None:
    """No batch is compressed: a small file could else ask for any memory."""
    import pyarrow as pa

    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(content)):
        plain = message.type != "record batch" or not _compressed(message.metadata.to_pybytes())
        require(plain, "Arrow", "be without compression", "a compressed batch", "send Parquet instead")


def _compressed(metadata: bytes) -> bool:
    """Whether a message of a record batch has a `compression`, by the layout of flatbuffers."""
    message = struct.unpack_from("<I", metadata)[0]
    header = _field(metadata, message, 2)
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    return _field(metadata, batch, COMPRESSION) != 0


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a table's field lies; 0 where it is not there."""
    entries = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, entries)[0]
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", metadata, entries + place)[0] if place < size else 0
    return table + offset if offset else 0
