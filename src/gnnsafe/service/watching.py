"""The history of a service: what requests bring is gathered, and written by a thread that no request waits for.

So a database that is lost, slow or locked holds up no answer, and a busy service adds an entry a minute: a request that
comes after a quiet minute is written at once, what comes in the minute after it together.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from gnnsafe.detector import Detector
from gnnsafe.errors import HistoryError
from gnnsafe.monitoring import History, Judged, Observation, detector_digest, gather

__all__ = ["Followed", "Watch"]

EVERY = 60.0  # seconds between two entries of what requests brought
AGAIN = 10.0  # seconds until the next try where something failed
LAST = 200  # entries of the history that are shown
MOST = 128_000_000  # bytes that wait for an entry; then it is written at once, beyond twice as many none waits
SLOW = 10.0  # seconds after which a write is said to hang, and that the end of the service waits for the last one

Pair = tuple[Detector, Observation]

log = logging.getLogger("gnnsafe.service")


@dataclass(frozen=True)
class Followed:
    """What the history says of one detector; nothing until it was read."""

    digest: str = ""
    judged: Sequence[Judged] = ()
    """Its last entries."""
    began: Judged | None = None
    raised: Judged | None = None
    """Its first entry, and the one by which the alarm was raised, however long ago."""


class Watch:
    """A history, what waits to be written to it, and what it says of one detector. Safe for threads."""

    def __init__(self, history: History, alpha: float, told: Callable[[str | None], None]) -> None:
        self.history, self._alpha, self._told = history, alpha, told
        self.followed = Followed()
        """Replaced as a whole: who reads it once has one detector's."""
        self._waiting, self._size = list[Pair](), 0
        self._kept: Pair | None = None
        self._left_out, self._begun, self._wrote, self._failed = 0, 0.0, 0.0, False
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._wake, self._ended = threading.Event(), False

    def follow(self, detector: Detector) -> None:
        """From now on it is about this detector, of which the thread that writes will read."""
        digest = detector_digest(detector)
        with self._lock:
            if digest == self.followed.digest:
                return
            self.followed = Followed(digest)
        self._wake.set()

    def add(self, detector: Detector, observed: Observation) -> None:
        """What a request brought: written at once, or with what else comes within a minute after the last."""
        size = _size(observed)
        with self._lock:
            if self._size > 2 * MOST:
                self._left_out += 1
                return
            self._waiting.append((detector, observed))
            self._size += size
            due = time.monotonic() - self._wrote > EVERY or self._size > MOST
            if due and not self._failed:
                self._wake.set()

    def write(self, kept: Pair | None = None) -> None:
        """An entry of all that waits, and one of the kept graph; where the database fails, they wait on."""
        with self._writing:
            self._kept = kept or self._kept
            self._failed, self._begun = False, time.monotonic()
            with self._lock:
                waiting = list(self._waiting)
                if waiting:
                    self._wrote = self._begun
                self._wake.clear()  # whatever it was set for is about to be done
            try:
                self._read()  # does it answer? Only then is anything gathered
                if waiting or self._kept:
                    self._enter(waiting)
                    self._read()
            except Exception as error:
                self._trouble(error)
            if not self._failed:
                self._told(None)
            self._begun = 0.0
        with self._lock:
            left_out, self._left_out = self._left_out, 0
        if left_out:
            log.warning("left out", extra={"about": "history", "graphs": left_out})

    def hangs(self) -> float:
        """For how many seconds a write has not ended; 0 where that is no trouble."""
        begun = self._begun
        seconds = time.monotonic() - begun if begun else 0.0
        return seconds if seconds > SLOW else 0.0

    def run(self, work: Callable[[], None]) -> None:
        """Do the work from time to time, in this thread, until `end`."""
        while not self._ended:
            self._wake.wait(AGAIN if self._failed else EVERY)
            self._wake.clear()
            if not self._ended:
                try:
                    work()
                except Exception as error:
                    self._trouble(error)

    def end(self) -> None:
        """Write what waits, unless the database takes too long, and let go of it."""
        self._ended = True
        self._wake.set()
        last = threading.Thread(target=self.write, daemon=True)
        last.start()
        last.join(SLOW)
        if last.is_alive() or self._waiting or self._kept:
            log.error("trouble", extra={"about": "history", "reason": "the last entries could not be written"})
        if not last.is_alive():
            self.history.close()

    def _enter(self, waiting: list[Pair]) -> None:
        for _, group in groupby(waiting, key=_detector):
            parts = list(group)
            self._append(parts)
            with self._lock:
                del self._waiting[: len(parts)]
                self._size -= sum(_size(observed) for _, observed in parts)
        if self._kept is not None:
            self._append([self._kept])
            self._kept = None

    def _append(self, parts: list[Pair]) -> None:
        """One entry. What fails by no fault of the database would fail again: it is left out."""
        detector, observed = parts[0][0], [one for _, one in parts]
        try:
            together = gather(detector, observed, name=f"{len(parts)} requests") if len(parts) > 1 else observed[0]
            self.history.append(together)
        except HistoryError:
            raise
        except Exception as error:
            self._trouble(error)
            with self._lock:
                self._left_out += len(parts)

    def _read(self) -> None:
        """What the history says now: also of entries that others wrote, and of a detector that was swapped in."""
        before = self.followed
        judged = self.history.entries(before.digest, last=LAST)
        began = before.began or self.history.first(before.digest)
        raised = before.raised
        if raised is None and judged and judged[-1].raised(self._alpha):
            raised = self.history.first(before.digest, alpha=self._alpha)
        with self._lock:
            if self.followed is before:  # else `follow` has woken the next write
                self.followed = Followed(before.digest, judged, began, raised)

    def _trouble(self, error: Exception) -> None:
        self._failed = True
        if not isinstance(error, HistoryError):
            log.error("history failed", exc_info=error)
        self._told(str(error))


def _detector(pair: Pair) -> Detector:
    return pair[0]


def _size(observed: Observation) -> int:
    """About as many bytes as wait with it."""
    entry, ids = observed.entry, observed.decisions.ids
    texts = 0 if isinstance(ids, range) else sum(map(sys.getsizeof, ids))
    return 8_000 + 64 * entry.nodes + 16 * entry.edges + 16 * len(entry.features.mean) + texts
