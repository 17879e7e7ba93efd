"""How a file is refused: in one line that says where, what and what to do."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from gnnsafe.errors import GraphFileError

__all__ = ["listed", "readable", "refusal", "shown"]

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
