"""Tables of nodes and edges as an engine reads them: which columns mean what, and whether they can mean it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gnnsafe.datasets.reading.columns import is_list, is_number, is_text
from gnnsafe.datasets.reading.files import find_column
from gnnsafe.datasets.reading.refusal import listed, refusal, warn_of_weights
from gnnsafe.errors import GraphFileError, require

if TYPE_CHECKING:
    from gnnsafe.engines.engine import Engine

__all__ = ["FeatureColumns", "GraphTables", "graph_tables"]

ROLES = ("label", "y", "split")  # columns of a graph in files that say nothing of a node's features
LISTS = ("features", "x", "logits")
OTHERS = (
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
KEYS = "numbers, text, dates or bytes"
EXACT = {"halffloat": 2**11, "float": 2**24, "double": 2**53}  # up to which Arrow's floats have every whole number


@dataclass(frozen=True)
class FeatureColumns:
    """The columns of a table of nodes that hold its features (or logits): columns of numbers, or one of lists."""

    name: str
    """The table, for messages."""
    columns: tuple[str, ...]
    width: int
    listed: bool = False


@dataclass(frozen=True)
class GraphTables:
    """A graph in an engine: SQL for its nodes (id, then `rows`) and its edges (source, target), ids of one type."""

    nodes: str
    """Gives `id`, `moment` where there are times, and the columns c0, c1, … of `rows`."""
    edges: str
    ends: str
    """The same, and beside them the ends as they were given: given_source, given_target."""
    rows: FeatureColumns
    id_type: str | None
    """What `id` is cast to in the end; None: it is as it was."""
    whole: bool
    """Whether ids are whole numbers of 64 bits."""
    times: bool
    """Whether nodes have a `moment`: a column `timestamp` of numbers, or of dates, as seconds since 1970."""
    both_ways: bool = False
    drop_unknown: bool = False


def graph_tables(
    engine: Engine, nodes: Any, edges: Any, *, names: tuple[Any, ...] | None = None, width: int | None = None,
    both_ways: bool = False, drop_unknown: bool = False,
) -> GraphTables:  # fmt: skip
    """The user's two tables, once their columns are known to be what they should.

    Args:
        engine: Where they are read.
        nodes: A path, a glob or a table: `id`, and features or logits.
        edges: Likewise: `source` and `target`.
        names: The features that the detector knows, where these have names.
        width: How many features or logits there should be, where that is known.
        both_ways: Whether each edge is read in both directions, repeated ones once.
        drop_unknown: Whether edges of unknown nodes are left out.

    Raises:
        GraphFileError: A column is missing or of a type that it cannot have.
    """
    node_file, edge_file = (Path(t if isinstance(t, str) else n) for t, n in ((nodes, "nodes"), (edges, "edges")))
    node_schema, edge_schema = engine.view("given_nodes", nodes), engine.view("given_edges", edges)
    id_name = str(find_column(node_file, node_schema.names, "id", "node_id", required=True))
    ends = [
        str(find_column(edge_file, edge_schema.names, *pair, required=True))
        for pair in (("source", "src"), ("target", "dst"))
    ]
    warn_of_weights(edge_file, edge_schema.names)
    time = find_column(node_file, node_schema.names, "timestamp")
    rows = _rows(engine, node_file, node_schema, {id_name, time}, names)
    rule = f"have the {width} numbers per node that the detector knows"
    require(width is None or rows.width == width, str(node_file), rule, rows.width)
    kinds = [_kind(node_file, node_schema, id_name), *(_kind(edge_file, edge_schema, end) for end in ends)]
    if "float" in kinds[1:]:
        halves = engine.halves(edges)
        kinds[1:] = ["halffloat" if end in halves else kind for end, kind in zip(ends, kinds[1:], strict=True)]
    casts = _casts(edge_file, kinds, ends)
    own = _key(engine.quoted(id_name), kinds[0], casts)
    trimmed = kinds[0] != "text"
    features = [f"{engine.quoted(name)} AS c{place}" for place, name in enumerate(rows.columns)]
    moment = None if time is None else _moment(engine, engine.quoted(time), node_schema.field(time).type)
    times = [] if moment is None else [f"{moment} AS moment"]
    if moment is not None:
        ((lost,),) = engine.rows(f"SELECT count(*) - count({moment}) FROM given_nodes")
        require(lost == 0, "timestamp", "be a finite number or a date for every node", f"{lost} without")
    source, target = (
        _key(engine.quoted(end), kind, casts, trimmed=trimmed) for end, kind in zip(ends, kinds[1:], strict=True)
    )
    as_given = (f"{engine.quoted(end)} AS given_{name}" for end, name in zip(ends, ("source", "target"), strict=True))
    keys = f"{source} AS source, {target} AS target"
    written = {"whole": "BIGINT", "wide": "UBIGINT"}.get(kinds[0])
    return GraphTables(
        f"SELECT {', '.join([f'{own} AS id', *times, *features])} FROM given_nodes",
        f"SELECT {keys} FROM given_edges", f"SELECT {keys}, {', '.join(as_given)} FROM given_edges",
        rows, written if casts not in (None, written) else None, casts == "BIGINT", moment is not None,
        both_ways, drop_unknown,
    )  # fmt: skip


def _rows(engine: Engine, file: Path, schema: Any, meant: set[Any], names: tuple[Any, ...] | None) -> FeatureColumns:
    left = [one for one in schema if one.name not in meant and one.name.strip().lower() not in ROLES]
    for one in left:
        if one.name.strip().lower() in LISTS and is_list(one.type):
            found = engine.rows(f"SELECT {engine.quoted(one.name)} FROM given_nodes LIMIT 1")
            return FeatureColumns(str(file), (one.name,), len(found[0][0] or ()) if found else 0, listed=True)
    numbers = [one.name for one in left if is_number(one.type)]
    if not numbers:
        problem = f"has no column of numbers (found: {listed(schema.names)})"
        raise refusal(file, problem, "add columns of numbers, or one of lists")
    if names is not None:
        rule, remedy = f"have the {len(names)} features of the training graph", f"they are {listed(map(str, names))}"
        for name in {*names} ^ {*numbers}:
            got = f"no column of numbers '{name}'" if name in names else f"'{name}', which it does not know"
            require(False, str(file), rule, got, remedy)
    chosen = numbers if names is None else [str(name) for name in names]
    return FeatureColumns(str(file), tuple(chosen), len(chosen))


def _moment(engine: Engine, column: str, kind: Any) -> str | None:
    """A time as a number; None: it is none, such as text."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return engine.seconds(column, zoned=getattr(kind, "tz", None) is not None)
    if not is_number(kind):
        return None
    if pa.types.is_integer(kind):
        return f"CAST({column} AS BIGINT)"
    return f"CASE WHEN {_finite(column)} THEN CAST({column} AS DOUBLE) END"


def _finite(column: str) -> str:
    """Not by ISNAN or a bound: the smallest and largest values in a Parquet file leave NaN out, DuckDB trusts them."""
    return f"{column} - {column} = 0"


def _kind(file: Path, schema: Any, name: str) -> str:
    """What an id is: whole, wide, text, or else its type."""
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(kind):
        return "wide" if pa.types.is_uint64(kind) else "whole"
    if is_text(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_floating(kind) or any(check(kind) for check in OTHERS):
        return str(kind)
    raise _no_key(file, name, kind)


def _no_key(file: Path, name: str, kind: Any) -> GraphFileError:
    return refusal(file, f"must be {KEYS} (got {kind})", "use one number or text per node", column=name)


def _casts(file: Path, kinds: list[str], ends: list[str]) -> str | None:
    """The type that all ids are compared in; None: as they are."""
    found = set(kinds)
    if found == {"whole"}:
        return "BIGINT"
    if found == {"whole", "wide"}:
        return "DECIMAL(20, 0)"
    if found <= {"whole", *EXACT}:
        return "BIGINT" if kinds[0] == "whole" else "DOUBLE"
    if found <= {"whole", "text"}:
        return "STRING"
    if len(found) == 1:
        return None
    end = next(place for place, kind in enumerate(kinds[1:]) if kind != kinds[0])
    problem = f"must be of the type of the nodes' ids (got {kinds[end + 1]}, not {kinds[0]})"
    raise refusal(file, problem, "cast one of them", column=ends[end])


def _key(column: str, kind: str, cast: str | None, *, trimmed: bool = False) -> str:
    """An id as SQL: text is compared letter by letter, without the spaces around it where the nodes' are numbers.

    A number that the nodes' type has not is no node's id, nor is one that is not finite, nor a float so large that it
    stands for several whole numbers: null.
    """
    if cast is None:
        return column
    if kind == "text":
        text = f"CAST({column} AS STRING)"
        return f"NULLIF({f'TRIM({text})' if trimmed else text}, '')"
    if kind in EXACT and cast == "BIGINT":
        whole = f"{_finite(column)} AND {column} = FLOOR({column}) AND ABS({column}) < {EXACT[kind]}"
        return f"CASE WHEN {whole} THEN CAST({column} AS BIGINT) END"
    if kind in EXACT:
        return f"CASE WHEN {_finite(column)} THEN CAST({column} AS DOUBLE) END"
    if cast == "DOUBLE":
        return f"CASE WHEN {column} BETWEEN {-EXACT['double']} AND {EXACT['double']} THEN CAST({column} AS DOUBLE) END"
    return f"CAST({column} AS {cast})"
