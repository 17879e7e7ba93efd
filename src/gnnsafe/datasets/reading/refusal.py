"""How a file is refused, or doubted: in one line that says where, what and what to do."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from gnnsafe.errors import GraphFileError, ModelWarning, PrecisionWarning

__all__ = ["listed", "readable", "refusal", "shown", "warn_of_coarse", "warn_of_weights"]

FEWEST_LEVELS = 64  # that float32 should tell apart between the least and the largest value of a column
WEIGHTS = ("weight", "weights", "edge_weight", "edge_weights", "edge_attr")
DAMAGED = "the file may be cut short or damaged: write it again"


def refusal(
    file: Path, problem: str, remedy: str, *, column: str | None = None, row: int | None = None, key: str | None = None
) -> GraphFileError:
    """The error to raise; rows are counted from 1 and without the header, `key` is an entry as Python writes it.

    >>> print(refusal(Path("nodes.csv"), "must be a number (got 'many')", "correct it", column="age", row=3))
    nodes.csv, column 'age', row 3: must be a number (got 'many'); correct it
    """
    place = str(file)
    place += f", {key}" if key else ""
    place += f", column '{column}'" if column is not None else ""
    place += f", row {row}" if row is not None else ""
    return GraphFileError(" ".join(f"{place}: {problem}; {remedy}".split()))


@contextmanager
def readable(file: Path, kind: str, *errors: type[Exception]) -> Iterator[None]:
    """Whatever goes wrong inside, of these kinds, is put down to the file."""
    try:
        yield
    except GraphFileError:
        raise
    except errors as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        remedy = "check the path, and who may read it" if isinstance(error, OSError) and error.errno else DAMAGED
        raise refusal(file, f"cannot be read as {kind} ({reason.splitlines()[0].rstrip('.')})", remedy) from error


def shown(value: object) -> str:
    """A value as Python writes it, cut short where it is long; a missing one as "nothing"."""
    return "nothing" if value is None else reprlib.repr(value)


def listed(names: Iterable[str]) -> str:
    """Names in a row, the first twelve of them.

    >>> listed(str(number) for number in range(20))
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …'
    """
    names = iter(names)
    first = list(islice(names, 12))
    return ", ".join([*first, "…"] if next(names, None) is not None else first) or "none"


def warn_of_coarse(file: Path, columns: Sequence[str], low: ArrayLike, high: ArrayLike) -> None:
    """Say which columns vary, from `low` to `high`, by less than float32 can tell: most of what they say is lost."""
    low, high = (np.atleast_1d(np.asarray(end, dtype=np.float64)) for end in (low, high))
    step = np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(np.float32)).astype(np.float64)
    coarse = np.flatnonzero((high > low) & (high - low < FEWEST_LEVELS * step))
    if len(coarse):
        first, more = coarse[0], f" and {len(coarse) - 1} more columns" if len(coarse) > 1 else ""
        text = (
            f"{file}, column '{columns[first]}'{more}: varies from {low[first]:.17g} to {high[first]:.17g} only, steps "
            "that float32 can hardly tell apart; subtract the smallest value first"
        )
        warnings.warn(PrecisionWarning(text), stacklevel=2)


def warn_of_weights(file: Path, names: Iterable[str]) -> None:
    """Say that edges have weights in the file, which no model of gnnsafe's takes."""
    for name in names:
        if name.strip().lower() in WEIGHTS:
            text = (
                f"{file}, {name.strip()}: is not read, and all edges count alike; for a model of your own that takes "
                "them, set data.edge_weight or data.edge_attr in Python"
            )
            warnings.warn(ModelWarning(text), stacklevel=2)
