"""Files that are written whole or not at all, warned of once they are there; folders that one writer has at a time."""

from __future__ import annotations

import logging
import os
import secrets
import stat
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnnsafe.errors import InputError, require

__all__ = ["given_path", "locked", "replacing", "warned_after", "writable"]

log = logging.getLogger(__name__)


def given_path(name: str, path: object) -> Path:
    """What a user gave as a path, checked to be text or a path."""
    require(isinstance(path, str | os.PathLike), name, "be a path", repr(path))
    return Path(path)  # type: ignore[arg-type]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to that becomes `path` when the block ends well, and else vanishes; errors name `path`.

    It lies in the same folder under a random name, and is created new: two writers never share one, whatever their
    thread, process or container. No planted link is followed, neither there nor at `path`, where it is
    replaced; a link that the user names is resolved by `writable`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".gnnsafe-{secrets.token_hex(8)}")
    part.touch(exist_ok=False)  # with the permissions that the user's umask gives to new files
    try:
        yield part
        os.replace(part, path)
        log.info("wrote %s", path)
    except OSError as error:  # such as a full disk
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A folder that is there, for one writer at a time: others, of any thread or process, wait until the block ends.

    Where the system or the file system has no such locks (Windows, some network drives), there is no waiting.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)  # the folder itself: no file is left in it
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def writable(name: str, path: Path, *, file: str, inputs: Iterable[Path] = ()) -> Path:
    """`path`, or `file` in it where it is a folder, or what it links to; an `InputError` where writing it would fail.

    Args:
        name: What the path is called in a complaint.
        path: Where the user wants to write.
        file: The file's name where `path` is a folder.
        inputs: Files that are read: none of them may be written over, by whatever name.

    Raises:
        InputError: It cannot be written, or it is one of the `inputs`.
    """
    try:
        path = path / file if path.is_dir() else path
        path = Path(os.path.realpath(path)) if path.is_symlink() else path
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.stat().st_mode):
                raise OSError("it is no regular file")
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"'{name}' must be a file that can be written (got '{path}': {reason})") from error
    for given in inputs:
        if path.exists() and given.exists() and path.samefile(given):
            raise InputError(f"'{name}' must be no file that is read (got '{path}', which is '{given}'); name another")
    return path


@contextmanager
def warned_after() -> Iterator[None]:
    """Warnings of the block are given once it has ended well: beside an error they speak of a result that is not there.

    >>> with warned_after():
    ...     print("done")
    done
    """
    with warnings.catch_warnings(record=True) as held:
        yield
    for one in held:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
