"""Numbers for nodes, 0, 1, … as they come: looked up by whole numbers that lie close together, else joined by ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from gnnsafe.datasets.reading.refusal import refusal, shown
from gnnsafe.engines.inputs import GraphTables
from gnnsafe.errors import GraphFileError, require

if TYPE_CHECKING:
    from gnnsafe.engines.duckdb import DuckDB
    from gnnsafe.engines.engine import Engine

__all__ = ["Numbering", "check_ids", "numbered", "unknown_ends"]

SPARSE = 8  # times as many whole numbers as nodes, among which ids may lie to be looked up in a table


@dataclass(frozen=True)
class Numbering:
    """SQL that gives the ends of edges, and what makes numbers of them, −1 for an id that no node has."""

    sql: str
    first: int = 0
    lookup: Any = None

    def numbers(self, ends: Any) -> Any:
        """The numbers of the nodes at the ends."""
        if self.lookup is None:
            return pc.fill_null(ends, -1).to_numpy(zero_copy_only=False)
        if ends.null_count:
            ends = pc.fill_null(ends, self.first - 1)
        places = ends.to_numpy(zero_copy_only=False) - self.first
        inside = (places >= 0) & (places < len(self.lookup))
        if inside.all():
            return self.lookup[places]
        return np.where(inside, self.lookup[np.where(inside, places, 0)], -1)


def numbered(engine: DuckDB, graph: GraphTables, nodes: int) -> Numbering:
    """How the edges' ends become numbers of the nodes in the table `ids`, once each id is there once."""
    check_ids(engine, graph)
    if graph.whole:
        low, high = engine.rows("SELECT min(id), max(id) FROM ids")[0]
        if high - low < SPARSE * nodes + 2**16:
            lookup = np.full(high - low + 1, -1, dtype=np.int32 if nodes < 2**31 else np.int64)
            for batch in engine.batches("SELECT id, number FROM ids", 2**20):
                lookup[batch.column("id").to_numpy() - low] = batch.column("number").to_numpy()
            return Numbering(graph.edges, low, lookup)
    joined = (
        f"SELECT s.number AS source, t.number AS target FROM ({graph.edges}) AS e "
        "LEFT JOIN ids AS s ON e.source = s.id LEFT JOIN ids AS t ON e.target = t.id"
    )
    return Numbering(joined)


def check_ids(engine: Engine, graph: GraphTables) -> None:
    """Each node of the table `ids` has an id, and no other node has it."""
    ((nodes, given),) = engine.rows("SELECT count(*), count(id) FROM ids")
    require(nodes > 0, graph.rows.name, "have at least one row", "none", "check what wrote the table")
    require(given == nodes, graph.rows.name, "have an id for every node", f"{nodes - given} without")
    twice = engine.rows("SELECT id, count(*) FROM ids GROUP BY id HAVING count(*) > 1 LIMIT 1")
    require(not twice, graph.rows.name, "have each id once", "".join(f"{shown(i)} {n} times" for i, n in twice))


def unknown_ends(engine: Engine, graph: GraphTables, lost: int, total: int) -> GraphFileError:
    """The error to raise where edges have ends that no node is."""
    query = "SELECT given_{0} FROM ({1}) AS e WHERE NOT EXISTS (SELECT 1 FROM ids AS n WHERE n.id = e.{0}) LIMIT 1"
    found = {end: engine.rows(query.format(end, graph.ends)) for end in ("source", "target")}
    end = next(end for end, rows in found.items() if rows)
    problem = f"must be the id of a node (got {shown(found[end][0][0])}, one of {lost:,} such edges of {total:,})"
    remedy = "add the node, or leave such edges out (--drop-unknown-edges)"
    if lost == total:
        remedy = "no edge would be left: check that both tables write ids alike"
    return refusal(Path("edges"), problem, remedy, column=end)
