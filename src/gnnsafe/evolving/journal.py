"""A journal of changes: what is in it is there after the process, or the machine, has died."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

from gnnsafe.errors import InputError, require

__all__ = ["Journal"]

FORMAT = 1


class Journal:
    """A file of JSON, a line for each set of changes with a checksum before it; the first says of which graph.

    `append` returns once the line is on the disk. A line that was cut short, as when the process was killed, was never
    acknowledged: it is taken away when the journal is opened. One writer has it at a time.
    """

    def __init__(self, path: Path, graph: str) -> None:
        self.path, self.count = path, 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            self._lock()
            self._end = self._whole(graph)
            os.ftruncate(self._file, self._end)
            if self._end == 0:
                self.append({"format": FORMAT, "graph": graph})
                self._sync_folder()
        except BaseException:
            os.close(self._file)
            raise

    def changes(self) -> Iterator[dict[str, Any]]:
        """What was appended, in its order."""
        with self.path.open("rb") as lines:
            next(lines)
            for line in lines:
                yield json.loads(line[17:])

    def append(self, record: dict[str, Any]) -> None:
        """A line, once it is on the disk; where that fails, as on a full one, nothing of it is left."""
        text = json.dumps(record, separators=(",", ":")).encode()
        line = b"%016x %s\n" % (xxhash.xxh3_64_intdigest(text), text)
        try:
            self._write(line)
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._end)
            error.filename = str(self.path)
            raise
        self._end += len(line)

    def close(self) -> None:
        """Let another have it."""
        os.close(self._file)

    def _write(self, line: bytes) -> None:
        place = self._end
        while line:
            written = os.pwrite(self._file, line, place)
            place, line = place + written, line[written:]

    def _whole(self, graph: str) -> int:
        """How many bytes are whole lines, once the first says that they are about this graph."""
        end = 0
        with os.fdopen(os.dup(self._file), "rb") as lines:
            for line in lines:
                text = line[17:-1]
                if not line.endswith(b"\n") or line[:17] != b"%016x " % xxhash.xxh3_64_intdigest(text):
                    rest = sum(map(len, lines))
                    rule = "be whole but for its last line"
                    require(rest == 0, "journal", rule, f"a damaged line in '{self.path}', {rest} bytes before its end")
                    break
                if end == 0:
                    self._check_header(json.loads(text), graph)
                end, self.count = end + len(line), self.count + (end > 0)
        return end

    def _check_header(self, header: Any, graph: str) -> None:
        known = header == {"format": FORMAT, "graph": graph}
        remedy = "put that graph back, or move the journal away to start from this one"
        require(known, "journal", "be of the graph that is read", f"'{self.path}', which is of another", remedy)

    def _lock(self) -> None:
        try:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has no such locks
            return
        except OSError as error:
            raise InputError(f"'journal' must be written by one process (got '{self.path}', which one has)") from error

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
