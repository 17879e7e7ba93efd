"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnnsafe.errors import InputError

__all__ = ["replacing", "writable"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to that becomes `path` (or what it links to) when the block ends well, and else vanishes."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".gnnsafe-{os.getpid()}")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def writable(name: str, path: Path, *, file: str) -> Path:
    """`path`, or `file` in it where it is a folder; an `InputError` now where writing it would fail later."""
    try:
        path = path / file if path.is_dir() else path
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            return path
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"'{name}' must be a file that can be written (got '{path}': {reason})") from error
