"""A journal of changes: what is in it is there after the process, or the machine, has died."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

from gnnsafe.errors import InputError, require
from gnnsafe.evolving.snapshot import Snapshot, snapshots, sync_folder

__all__ = ["Journal"]

FORMAT = 1


class Journal:
    """A file of JSON, a line for each set of changes with a checksum before it; the first says of which graph.

    `append` returns once the line is on the disk. A line that was cut short, as when the process was killed, was never
    acknowledged: it is taken away when the journal is opened. One writer has it at a time.

    It grows until `rebase` makes it begin from a snapshot of the graph, a file beside it that its first line names.
    The journal that does is another file, which takes the place of this one at once: whenever the process dies, one of
    the two is there, whole, with the snapshot that it names.
    """

    def __init__(self, path: Path, graph: str) -> None:
        self.path, self.count, self.base = path, 0, Snapshot.none()
        self._graph, self._file = graph, _opened(path)
        try:
            self.end, self._begin = self._whole(), 0
            os.ftruncate(self._file, self.end)
            if self.end == 0:
                self.append(self._header())
                sync_folder(path)
            self._begin = self._first()
            self._clean()
        except BaseException:
            os.close(self._file)
            raise

    @property
    def size(self) -> int:
        """Bytes of changes."""
        return self.end - self._begin

    def changes(self) -> Iterator[dict[str, Any]]:
        """What was appended, in its order, since the graph was as `base` has it."""
        with self.path.open("rb") as lines:
            next(lines)
            for line in lines:
                yield json.loads(line[17:])

    def append(self, record: dict[str, Any]) -> None:
        """A line, once it is on the disk; where that fails, as on a full one, nothing of it is left."""
        line = _line(record)
        try:
            _write(self._file, line, self.end)
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self.end)
            error.filename = str(self.path)
            raise
        self.end += len(line)

    def rebase(self, base: Snapshot, since: int) -> None:
        """Begin from a snapshot that is on the disk: of the lines those from the byte `since` on are kept."""
        part = self.path.with_name(f"{self.path.name}.new")
        part.unlink(missing_ok=True)
        file, before = _opened(part), self.base
        try:
            self.base = base
            header = _line(self._header())
            _write(file, header + os.pread(self._file, self.end - since, since), 0)
            os.fsync(file)
            os.replace(part, self.path)
        except BaseException:
            self.base = before
            os.close(file)
            part.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self._begin, self.end = file, len(header), len(header) + self.end - since
        sync_folder(self.path)
        self._clean()

    def close(self) -> None:
        """Let another have it."""
        os.close(self._file)

    def _header(self) -> dict[str, Any]:
        about = {"format": FORMAT, "graph": self._graph}
        return about if self.base.file is None else {**about, "base": self.base.to_record()}

    def _first(self) -> int:
        with self.path.open("rb") as lines:
            return len(next(lines))

    def _clean(self) -> None:
        """Take away what a process that was killed has left: snapshots that no journal begins from."""
        for file in snapshots(self.path):
            if file.name != self.base.file:
                file.unlink(missing_ok=True)

    def _whole(self) -> int:
        """How many bytes are whole lines, once the first says that they are about this graph."""
        end = 0
        with os.fdopen(os.dup(self._file), "rb") as lines:
            for line in lines:
                text = line[17:-1]
                if not line.endswith(b"\n") or line[:17] != b"%016x " % xxhash.xxh3_64_intdigest(text):
                    rest = sum(map(len, lines))
                    rule = "be whole except for its last line"
                    require(rest == 0, "journal", rule, f"a damaged line in '{self.path}', {rest} bytes before its end")
                    break
                if end == 0:
                    self._read_header(json.loads(text))
                end, self.count = end + len(line), self.count + (end > 0)
        return end

    def _read_header(self, header: Any) -> None:
        self.base = Snapshot.of(header.pop("base", None))
        known = header == {"format": FORMAT, "graph": self._graph}
        remedy = "put that graph back, or move the journal away to start from this one"
        require(known, "journal", "be of the graph that is read", f"'{self.path}', which is of another", remedy)


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%016x %s\n" % (xxhash.xxh3_64_intdigest(text), text)


def _write(file: int, content: bytes, place: int) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(file, left, place)
        place, left = place + written, left[written:]


def _opened(path: Path) -> int:
    """The file, which is ours alone from now on."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            _lock(file, path)
            if os.path.samestat(os.fstat(file), os.stat(path)):  # else another took its place meanwhile
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _lock(file: int, path: Path) -> None:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows has no such locks
        return
    except OSError as error:
        raise InputError(f"'journal' must be written by one process (got '{path}', which one has)") from error
