"""All that a service knows: its models, the graph that it keeps, the history, and what is wrong with it."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnsafe.detector import Decisions, Detector
from gnnsafe.errors import GnnsafeError
from gnnsafe.evolving import Change, Changes, ScoredGraph
from gnnsafe.graph import Data
from gnnsafe.monitoring import History, Judged, observe
from gnnsafe.service.limits import Limits, Pool
from gnnsafe.service.metrics import Metrics, State
from gnnsafe.service.models import Models, ServedModel
from gnnsafe.service.refusal import RefusedError
from gnnsafe.service.watching import Watch

__all__ = ["FALSE_ALARM", "Service"]

FALSE_ALARM = 0.05
OBSERVED = 300.0  # seconds between two entries about a kept graph that changes
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
        self.draining, self.started_at = False, time.time()
        self._wrong: dict[str, str] = {}
        self.watch = None if history is None else Watch(history, alpha, self._history_told)
        self._observed = (0, 0.0)
        self.kept = None
        if graph is not None:
            self.kept = ScoredGraph(self.models[None].detector, graph, false_alarm=false_alarm, journal=journal)
        self.metrics.registry.register(State(self))
        self.compact()
        if self.watch is not None:
            self.watch.follow(self.models[None].detector)
            self.enter()

    @property
    def judged(self) -> Sequence[Judged]:
        """The last judgements about the first model; none where there is no history, or nothing in it."""
        return () if self.watch is None else self.watch.followed.judged

    def problems(self) -> dict[str, str]:
        """What is wrong, by what it is about; nothing where the service is ready."""
        if self.watch is not None and (seconds := self.watch.hangs()):
            self.wrong("history", "the database does not answer", f"for {seconds:.0f} s")
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
        if self.watch is not None and len(data.x) and model.name == self.models.first:
            observed = observe(copy.copy(model.detector), data, name=name, false_alarm=self.false_alarm)
            decisions = observed.decisions
            if false_alarm != self.false_alarm:
                flags = model.detector.calibrated().decisions(decisions.p_values, false_alarm=false_alarm, fdr=fdr)
                decisions = replace(decisions, flags=flags)
            self.watch.add(model.detector, observed)
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
        """The detector as its folder has it now, in the place of the one before; where that fails the log says why."""
        model = self.models[name]
        if model.folder is None:
            return model
        try:
            return self.swap(ServedModel.loaded(model.name, model.folder))
        except (GnnsafeError, OSError) as error:  # which may name a file: for the log alone
            log.error("not reloaded", extra={"model": model.name, "reason": str(error)})
            sentence = f"'{model.name}' was not reloaded and is served as before; the log says why"
            raise RefusedError(503, sentence) from error

    def swap(self, model: ServedModel) -> ServedModel:
        """This model under its name from the next request on; none is dropped, and none sees half of it."""
        if self.kept is not None and model.name == self.models.first:
            self.kept.swap(model.detector)
        self.models.put(model)
        if self.watch is not None and model.name == self.models.first:
            self.watch.follow(model.detector)
        log.info("swapped", extra={"model": model.name, "version": model.version})
        return model

    def enter(self) -> None:
        """An entry of what requests brought, and one of the kept graph where it changed and some time has passed."""
        if self.watch is None:
            return
        version, last = self._observed
        if self.kept is None or (last and (version == self.kept.version or time.monotonic() - last < OBSERVED)):
            self.watch.write()
            return
        self._observed = self.kept.version, time.monotonic()
        detector, graph = copy.copy(self.models[None].detector), self.kept.data()
        self.watch.write((detector, observe(detector, graph, name="kept graph", false_alarm=self.false_alarm)))

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

    def _history_told(self, failure: str | None) -> None:
        if failure is None:
            self.right("history")
        else:  # which may name a host or a file: for the log alone
            self.wrong("history", "the history cannot be read or written; the log says why", failure)

    def wrong(self, about: str, sentence: str, details: str | None = None) -> None:
        """From now on something is wrong: `/readyz` and the log say so, the log with details."""
        if about not in self._wrong:
            log.error("trouble", extra={"about": about, "reason": details or sentence})
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
        if self.watch is not None:
            self.watch.end()
