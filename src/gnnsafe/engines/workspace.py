"""Folders for what is stored temporarily, and outputs that appear whole: nothing of either outlives a run.

A folder is held by a lock as long as its process lives, however that ends. The next run beside it removes those that
no process holds: what SIGKILL left.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnnsafe.errors import InputError, require

__all__ = ["FULL", "PREFIX", "check_absent", "published", "workspace"]

PREFIX = ".gnnsafe-work-"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a full disk is called


@contextmanager
def workspace(parent: Path) -> Iterator[Path]:
    """A new folder within `parent`, removed when the block ends; those of runs that are no more are removed first."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        folder = parent / f"{PREFIX}{secrets.token_hex(8)}"
        folder.mkdir()
    except OSError as error:
        rule = "'temp', by default the folder that 'out' is in, must be a folder that can be written"
        raise InputError(f"{rule} (got '{parent}': {error.strerror})") from error
    lock = os.open(folder, os.O_RDONLY)
    _lock(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def published(out: Path) -> Iterator[Path]:
    """A folder to write to that becomes `out` when the block ends well, and else vanishes.

    Raises:
        InputError: `out` holds something, or cannot be written.
    """
    check_absent(out)
    with workspace(out.absolute().parent) as folder:
        part = folder / "parts"
        part.mkdir()
        yield part
        try:
            os.rename(part, out)  # onto nothing, or onto an empty folder
        except OSError as error:
            raise InputError(f"'out' must be a new folder (got '{out}': {error.strerror})") from error


def check_absent(out: Path) -> None:
    """Nothing is there that would be written over."""
    empty = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    require(empty, "out", "be a new or an empty folder", f"'{out}'", "remove it or name another")


def _lock(handle: int) -> bool:
    """Hold the folder until the process ends; False where another process does."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # no such locks on this system or drive: then no folder is removed
        return False
    return True


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                if _lock(handle):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
