"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnnsafe.errors import InputError

__all__ = ["check_writable", "replacing"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to that becomes `path` when the block ends well, and vanishes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def check_writable(name: str, path: Path) -> None:
    """Raise an `InputError` now where `replacing(path)` would fail later; changes nothing."""
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"'{name}' must be a file that can be written (got '{path}': {reason})") from error
