"""Graphs beyond memory and beyond one machine: one plan, carried out by DuckDB on one machine or by a Spark cluster.

    with gnnsafe.engines.DuckDB(memory="4GB") as engine:
        gnnsafe.engines.score(engine, detector, "lake/nodes/", "lake/edges/", out="scores/")

A plan is a list of steps (`Step`): functions of the rows of nodes, with sums over neighbours between them.
"""

from gnnsafe.errors import MissingExtraError

try:
    import pyarrow  # noqa: F401 - tables are Arrow's on their way
except ImportError as error:
    raise MissingExtraError(f"engines need {error.name}: pip install 'gnnsafe[duckdb]' or 'gnnsafe[spark]'") from error

from gnnsafe.engines.duckdb import DuckDB
from gnnsafe.engines.scoring import Asked, score, score_logits
from gnnsafe.engines.spark import Spark
from gnnsafe.engines.summary import Summary

__all__ = ["Asked", "DuckDB", "Spark", "Summary", "score", "score_logits"]
