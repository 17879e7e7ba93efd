"""All that a service knows: its models, the graph that it keeps, the history, and what is wrong with it."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnsafe.detector import Decisions, Detector
from gnnsafe.errors import GnnsafeError, HistoryError
from gnnsafe.evolving import Change, Changes, ScoredGraph
from gnnsafe.graph import Data
from gnnsafe.monitoring import History, Judged, detector_digest, observe
from gnnsafe.service.limits import Limits, Pool
from gnnsafe.service.metrics import Metrics, State
from gnnsafe.service.models import Models, ServedModel
from gnnsafe.service.refusal import RefusedError

__all__ = ["FALSE_ALARM", "Service"]

FALSE_ALARM = 0.05
OBSERVED = 300.0  # seconds between two entries about a kept graph that changes
LAST = 200  # entries of the history that are shown
CHANGED = 10  # nodes by which the cost of a change is tried
SLOW = 0.3  # seconds of a change

log = logging.getLogger("gnnsafe.service")


class Service:
    """The state behind the HTTP interface; all its methods but `problems` may take long, and are safe for threads."""

    def __init__(
        self,
        detectors: Mapping[str, Detector | ServedModel],
        *,
        graph: Data | None = None,
        journal: Path | None = None,
        history: History | None = None,
        limits: Limits | None = None,
        false_alarm: float = FALSE_ALARM,
        alpha: float = 0.01,
    ) -> None:
        self.limits, self.false_alarm, self.alpha = limits or Limits(), false_alarm, alpha
        named = {
            name: one if isinstance(one, ServedModel) else ServedModel.of(name, one) for name, one in detectors.items()
        }
        self.models, self.pool, self.metrics = Models(named), Pool(self.limits), Metrics()
        self.history, self.draining, self.started_at = history, False, time.time()
        self._wrong: dict[str, str] = {}
        self._observing, self._observed = threading.Lock(), (0, 0.0)
        self.judged: list[Judged] = []
        self.kept = None
        if graph is not None:
            self.kept = ScoredGraph(self.models[None].detector, graph, false_alarm=false_alarm, journal=journal)
        self.metrics.registry.register(State(self))
        self.compact()
        self._read_history()
        self.observe_kept()

    @property
    def alarm(self) -> Judged | None:
        """The last judgement about the first model; None where there is no history, or nothing in it."""
        return self.judged[-1] if self.judged else None

    def problems(self) -> dict[str, str]:
        """What is wrong, by what it is about; nothing where the service is ready."""
        return {**self._wrong, **({"stopping": "the service is about to stop"} if self.draining else {})}

    def decide(
        self,
        model: ServedModel,
        data: Data,
        *,
        false_alarm: float | None = None,
        fdr: float | None = None,
        name: str = "request",
    ) -> Decisions:
        """All about every node of a graph, which goes into the history where there is one."""
        self.limits.check_graph(data.x.shape[0], data.edge_index.shape[1])
        if self.history is not None and false_alarm is not None and model.name == self.models.first:
            observed = observe(copy.copy(model.detector), data, name=name, false_alarm=false_alarm)
            self._append(observed)
            decisions: Decisions = observed.decisions
        else:
            decisions = model.decide(data, false_alarm=false_alarm, fdr=fdr)
        self.metrics.decided(model.name, decisions)
        return decisions

    def change(self, record: Any) -> Change:
        """Changes of the kept graph."""
        kept = self.graph()
        changes = Changes.of(record, kept.graph.num_features)
        came = sum(kept.graph.number(name) is None for name in changes.nodes)
        self.limits.check_graph(kept.graph.count + came, kept.graph.num_edges + len(changes.edges))
        try:
            change = kept.change(changes)
        except OSError as error:
            self.wrong("journal", f"{error.strerror}: the last changes were refused")
            raise
        self.right("journal")
        self.metrics.decided(self.models.first, change.decisions)
        return change

    def reload(self, name: str | None) -> ServedModel:
        """The detector as its folder has it now, in the place of the one before."""
        model = self.models[name]
        if model.folder is None:
            return model
        return self.swap(ServedModel.loaded(model.name, model.folder))

    def swap(self, model: ServedModel) -> ServedModel:
        """This model under its name from the next request on; none is dropped, and none sees half of it."""
        if self.kept is not None and model.name == self.models.first:
            self.kept.swap(model.detector)
        self.models.put(model)
        self._read_history()
        log.info("swapped", extra={"model": model.name, "version": model.version})
        return model

    def observe_kept(self) -> None:
        """The kept graph into the history, where it has changed since and some time has passed."""
        if self.history is None or self.kept is None or not self._observing.acquire(blocking=False):
            return
        try:
            version, last = self._observed
            if last and (version == self.kept.version or time.monotonic() - last < OBSERVED):
                return
            self._observed = self.kept.version, time.monotonic()
            observed = observe(
                copy.copy(self.models[None].detector), self.kept.data(), name="kept graph", false_alarm=self.false_alarm
            )
            self._append(observed)
        finally:
            self._observing.release()

    def compact(self) -> None:
        """A journal that has grown too large begins again from the kept graph; where it cannot, the service goes on."""
        if self.kept is None:
            return
        try:
            if self.kept.compact():
                log.info("compacted", extra={"version": self.kept.version})
            self.right("compaction")
        except OSError as error:
            self.wrong("compaction", f"{error.strerror}: the journal grows until the disk has room")

    def announce(self) -> None:
        """Say in the log what a change of the kept graph costs."""
        if (kept := self.kept) is None:
            return
        touched, seconds = kept.touched_by(CHANGED), kept.whole_seconds
        about = {"nodes": kept.graph.count, "edges": kept.graph.num_edges, "hops": kept.reach, "version": kept.version}
        log.info("kept graph", extra={**about, f"touched_by_{CHANGED}": touched or kept.graph.count})
        if touched is None and seconds > SLOW:
            reason = (
                f"its detector reads {kept.reach} hops, so that each change scores the whole graph, {seconds:.1f} s"
            )
            remedy = "gnnsafe refit DETECTOR GRAPH --method gnnsafe --out fast/ gives one that reads few hops"
            log.warning("slow changes", extra={"reason": reason, "remedy": remedy})

    def graph(self) -> ScoredGraph:
        """The kept graph; a `RefusedError` where there is none."""
        if self.kept is None:
            raise RefusedError(404, "no graph is kept; start the service with --graph")
        return self.kept

    def _append(self, observed: Any) -> None:
        assert self.history is not None
        try:
            judged = self.history.append(observed)
        except HistoryError as error:
            self.wrong("history", str(error))
            return
        self.right("history")
        self.judged = [*self.judged, judged][-LAST:]

    def _read_history(self) -> None:
        if self.history is None:
            return
        try:
            self.judged = self.history.entries(detector=detector_digest(self.models[None].detector), last=LAST)
            self.right("history")
        except HistoryError as error:
            self.wrong("history", str(error))

    def wrong(self, about: str, sentence: str) -> None:
        """From now on something is wrong: `/readyz` and the log say so."""
        if about not in self._wrong:
            log.error("trouble", extra={"about": about, "reason": sentence})
        self._wrong[about] = sentence

    def right(self, about: str) -> None:
        """It is not, or no longer."""
        if self._wrong.pop(about, None) is not None:
            log.info("recovered", extra={"about": about})

    def close(self) -> None:
        """Finish what was accepted, then let go of files and databases."""
        self.pool.close()
        if self.kept is not None:
            self.kept.close()
        if self.history is not None:
            try:
                self.history.close()
            except GnnsafeError as error:
                log.error("trouble", extra={"about": "history", "reason": str(error)})
