"""What a plan asks of an engine: tables with a row per node, functions of their rows, sums over neighbours, and SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from gnnsafe.engines.inputs import GraphTables
from gnnsafe.engines.sources import is_remote
from gnnsafe.engines.workspace import check_absent
from gnnsafe.errors import require

__all__ = ["COMING", "COUNTS", "LEAVING", "Block", "Column", "Engine", "Function", "Step"]

Block = Mapping[str, Tensor]
"""Some rows of a table: a matrix [rows, width] for each of its columns."""

Function = Callable[[Block], dict[str, Tensor]]
"""Rows of a table → the same rows of the next one. It runs in whatever process holds the rows, so it can be pickled."""

COUNTS = ("count", "loops")
"""Columns of every table: how many edges from other nodes point to the node, and how many from itself."""

LEAVING, COMING = "leaving", "coming"
"""Others, where they are wanted: how many edges leave the node for others, and how many come, of silent nodes too."""


@dataclass(frozen=True)
class Column:
    """A matrix column: so many numbers per node, of one precision."""

    width: int = 1
    dtype: Literal["float32", "float64", "int64"] = "float32"


@dataclass(frozen=True)
class Step:
    """One step of a plan: a function of rows, which, where it `aggregates`, have the sums over neighbours beside them.

    Where it aggregates, rows have a column `aggregated`: the sum of the column `value` over the edges from other nodes.
    """

    function: Function
    makes: Mapping[str, Column]
    keeps: Sequence[str] = field(default=())
    """Columns of the table before that the next one has too."""
    aggregates: bool = False


class Engine(ABC):
    """Carries out a plan; used as a context, at whose end all that it stored temporarily is removed."""

    name: str
    entered = False

    @abstractmethod
    def __enter__(self) -> Engine: ...

    @abstractmethod
    def __exit__(self, *error: object) -> None: ...

    def check_out(self, out: str) -> None:
        """The result can be written there, and nothing is there that would be written over."""
        require(not is_remote(out), "out", "be a folder of this machine, but with spark", f"'{out}'")
        check_absent(Path(out))

    @abstractmethod
    def view(self, name: str, source: Any) -> Any:
        """Name a user's table (a path, a glob, a table in memory) in SQL; returns its Arrow schema."""

    def halves(self, source: Any) -> set[str]:
        """Columns of a user's table that are floats of 16 bits, and wider in its schema; most engines refuse such."""
        del source
        return set()

    @abstractmethod
    def quoted(self, name: str) -> str:
        """A column's name as SQL has it."""

    @abstractmethod
    def seconds(self, column: str, *, zoned: bool) -> str:
        """SQL of a date or time, with a time zone or without (then UTC), as seconds since 1970 in double precision."""

    @abstractmethod
    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The few rows of an aggregate."""

    @abstractmethod
    def small(self, name: str, table: Any) -> None:
        """Name an Arrow table in SQL."""

    @abstractmethod
    def create(self, name: str, sql: str) -> None:
        """Store what a query gives under a name in SQL."""

    @abstractmethod
    def read(self, graph: GraphTables, step: Step, *, width: int, leaving: bool) -> Any:
        """The step's table of the nodes' features, a column `value`; edges are made ready for sums of that width.

        With `leaving` every table has the columns `leaving` and `coming` too.
        """

    @abstractmethod
    def silence(self, table: Any, column: str, least: int) -> Any:
        """The same table of a graph without the edges that lead from nodes with at least this number in that column.

        Sums leave these edges out from now on, and `count` counts the others.
        """

    @abstractmethod
    def after(self, table: Any, step: Step) -> Any:
        """The table after a step; the one before it is dropped."""

    @abstractmethod
    def total(self, table: Any, function: Function) -> Tensor:
        """The sum, over parts of a table, of the numbers `total` that the function makes of each; in float64."""

    @abstractmethod
    def name_rows(self, name: str, table: Any) -> None:
        """Name a table in SQL, with the nodes' ids in a column `id` and, where there are such, their `moment`."""

    @abstractmethod
    def write(self, sql: str, out: str) -> None:
        """What a query gives, as a folder of Parquet parts: whole or not at all."""
