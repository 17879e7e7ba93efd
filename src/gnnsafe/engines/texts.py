"""SQL that DuckDB and Spark read alike: the same text for both."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["bar_counts", "counted_p_values", "double", "flagged_rows", "periods", "said_about_all"]


def double(value: float) -> str:
    """A number in double precision, exactly: a bare one would be a decimal."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def counted_p_values(table: str) -> str:
    """Each p-value that occurs, at most one more than there are calibration nodes, and how many nodes have it."""
    return f"SELECT p_value, count(*) FROM {table} GROUP BY p_value"


def odd_nodes(table: str, own: float, p_value: float) -> str:
    """How many nodes' own evidence is above this, how many have no larger p-value, and how many there are."""
    odd, rare = f"own > {double(own)}", f"p_value <= {double(p_value)}"
    return f"SELECT count(CASE WHEN {odd} THEN 1 END), count(CASE WHEN {rare} THEN 1 END), count(*) FROM {table}"


def flagged_rows(table: str, limit: float, columns: Sequence[str]) -> str:
    """The rows with a flag: p ≤ limit."""
    flag = f"p_value <= {double(limit)}" if limit > 0 else "FALSE"
    return f"SELECT {', '.join(columns)}, {flag} AS flag FROM {table}"


def said_about_all(table: str) -> str:
    """How many nodes there are, and how many are flagged."""
    return f"SELECT count(*), sum(CASE WHEN flag THEN 1 ELSE 0 END) FROM {table}"


def bar_counts(table: str, edges: Sequence[float]) -> str:
    """How many scores lie between two edges, and how many of them are flagged; the outermost take all beyond."""
    value = "CAST(score AS DOUBLE)"
    sums = []
    for place in range(len(edges) - 1):
        inside = [f"{value} >= {double(edges[place])}"] if place else []
        inside += [f"{value} < {double(edges[place + 1])}"] if place < len(edges) - 2 else []
        for more in ([], ["flag"]):
            condition = " AND ".join([*inside, *more]) or "TRUE"
            sums.append(f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)")
    return f"SELECT {', '.join(sums)} FROM {table}"


def periods(table: str, cuts: Sequence[str]) -> str:
    """First and last time, nodes, share of them flagged and mean p-value of each period; cuts belong to what ends."""
    cases = " ".join(f"WHEN moment <= {cut} THEN {place}" for place, cut in enumerate(cuts))
    period = f"CASE {cases} ELSE {len(cuts)} END"
    return (
        f"SELECT {period} AS period, min(moment), max(moment), count(*), "
        f"avg(CASE WHEN flag THEN 1.0 ELSE 0.0 END), avg(p_value) FROM {table} GROUP BY 1 ORDER BY 1"
    )
