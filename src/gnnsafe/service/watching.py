"""The history of a service: what requests bring is gathered, and written by a thread that no request waits for.

So a database that is lost, slow or locked holds up no answer, and a busy service adds an entry a minute: a request that
comes after a quiet minute is written at once, what comes in the minute after it together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from itertools import groupby

from gnnsafe.detector import Detector
from gnnsafe.errors import HistoryError
from gnnsafe.monitoring import History, Judged, Observation, detector_digest, gather

__all__ = ["Watch"]

EVERY = 60.0  # seconds between two entries of what requests brought
AGAIN = 10.0  # seconds until the next try where the database could not be written
LAST = 200  # entries of the history that are shown
MOST = 2_000_000  # nodes and edges that wait for an entry; then it is written at once, beyond twice as many none waits
SLOW = 10.0  # seconds after which a write is said to hang, and that the end of the service waits for the last one

log = logging.getLogger("gnnsafe.service")


class Watch:
    """A history, what waits to be written to it, and what it says of one detector. Safe for threads."""

    def __init__(self, history: History, alpha: float, told: Callable[[str | None], None]) -> None:
        self.history, self._alpha, self._told = history, alpha, told
        self.judged: list[Judged] = []
        """The last entries of the detector that is followed."""
        self.began: Judged | None = None
        self.raised: Judged | None = None
        """Its first entry, and the one by which the alarm was raised, however long ago."""
        self._digest = ""
        self._waiting: list[tuple[Detector, Observation]] = []
        self._left_out, self._begun, self._wrote, self._failed = 0, 0.0, 0.0, False
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._wake, self._ended = threading.Event(), False

    def follow(self, detector: Detector) -> None:
        """From now on it is about this detector."""
        self._digest = detector_digest(detector)
        try:
            self.judged = self.history.entries(self._digest, last=LAST)
            self.began = self.history.first(self._digest)
            self.raised = self.history.first(self._digest, alpha=self._alpha)
        except HistoryError as error:
            self._told(str(error))
        else:
            self._told(None)

    def add(self, detector: Detector, observed: Observation) -> None:
        """What a request brought: written at once, or with what else comes within a minute after the last."""
        with self._lock:
            size = sum(_size(one) for _, one in self._waiting)
            if size > 2 * MOST:
                self._left_out += 1
                return
            self._waiting.append((detector, observed))
        due = time.monotonic() - self._wrote > EVERY and not self._failed
        if due or size + _size(observed) > MOST:
            self._wake.set()

    def write(self, *more: Observation) -> None:
        """An entry of all that waits, and of each of `more`; where it cannot be written, it waits on."""
        with self._writing:
            with self._lock:
                taken, self._waiting = self._waiting, []
            self._begun = time.monotonic()
            try:
                self.began = self.history.first(self._digest)  # does it answer, also where there is nothing to write?
                if taken:
                    self._wrote = self._begun
                while taken:
                    detector, parts = next((key, list(group)) for key, group in groupby(taken, key=_first))
                    together = [observed for _, observed in parts]
                    name = f"{len(parts)} requests"
                    self._append(together[0] if len(parts) == 1 else gather(detector, together, name=name))
                    taken = taken[len(parts) :]
                for observed in more:
                    self._append(observed)
            except HistoryError as error:
                self._failed = True
                self._told(str(error))
            else:
                self._failed = False
                self._told(None)
            finally:
                self._begun = 0.0
                with self._lock:
                    self._waiting[:0] = taken
        if self._left_out:
            log.warning("left out", extra={"about": "history", "graphs": self._left_out})
            self._left_out = 0

    def hangs(self) -> float:
        """For how many seconds a write has not ended; 0 where that is no trouble."""
        seconds = time.monotonic() - self._begun if self._begun else 0.0
        return seconds if seconds > SLOW else 0.0

    def run(self, work: Callable[[], None]) -> None:
        """Do the work from time to time, in this thread, until `end`."""
        while not self._ended:
            self._wake.wait(AGAIN if self._failed else EVERY)
            self._wake.clear()
            if not self._ended:
                try:
                    work()
                except Exception:
                    log.exception("%s failed", work.__name__)

    def end(self) -> None:
        """Write what waits, unless the database takes too long, and let go of it."""
        self._ended = True
        self._wake.set()
        last = threading.Thread(target=self.write, daemon=True)
        last.start()
        last.join(SLOW)
        if last.is_alive() or self._waiting:
            log.error("trouble", extra={"about": "history", "reason": "the last entries could not be written"})
        if not last.is_alive():
            self.history.close()

    def _append(self, observed: Observation) -> None:
        judged = self.history.append(observed)
        if judged.entry.detector != self._digest:  # of a detector that was swapped meanwhile
            return
        self.judged = [*self.judged, judged][-LAST:]
        self.began = self.began or judged
        if self.raised is None and judged.raised(self._alpha):
            self.raised = self.history.first(self._digest, alpha=self._alpha)


def _first(pair: tuple[Detector, Observation]) -> Detector:
    return pair[0]


def _size(observed: Observation) -> int:
    return observed.entry.nodes + observed.entry.edges
