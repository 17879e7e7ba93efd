"""A graph that is kept and changes, with what a detector says about every node of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from gnnsafe.detector import Decisions, Detector
from gnnsafe.detector.parts import PartDetector, Read
from gnnsafe.errors import require
from gnnsafe.evolving.changes import Changes, Id
from gnnsafe.evolving.graph import EvolvingGraph, Part, grown
from gnnsafe.evolving.journal import Journal
from gnnsafe.evolving.listing import Columns
from gnnsafe.evolving.snapshot import Snapshot
from gnnsafe.explanation import Explanation
from gnnsafe.graph import Data, fingerprint
from gnnsafe.progress import progress

__all__ = ["Change", "ScoredGraph"]

HALF = 2  # a part that is over half of the graph costs as much as the whole of it
EGO = 2  # hops around a node that are drawn, at most
NO_EDGES = torch.empty(2, 0, dtype=torch.long)
ROOM = 2**26  # bytes of changes that a journal may always hold: seconds to read again


class Change(NamedTuple):
    """What came of some changes."""

    decisions: Decisions
    """About the nodes that are touched and still there."""
    whole: bool
    """Whether the graph was scored as a whole, since most of it was touched."""
    version: int
    """How many sets of changes were made."""


class _Scored(NamedTuple):
    """What is to be kept of a scoring."""

    nodes: Any
    """Numbers of those that were scored, in ascending order."""
    decisions: Decisions
    read: Any
    """Numbers of those of them that were read again."""
    rows: Any
    """What the method knows of these."""
    whole: bool = False


class ScoredGraph:
    """A kept graph: a change is made, the nodes that it affects are scored again, it is journalled; or it is undone.

    Scores of affected nodes are those of a full scoring, for a method that weighs evidence by the graph (`TwoScale`) by
    the weights of the last whole scoring, as `Detector.score_new` has it: at the start, when over half of the graph is
    touched, and by `rescore`. One thread changes it at a time; who reads waits for no scoring.
    """

    def __init__(
        self, detector: Detector, data: Data, *, false_alarm: float = 0.05, journal: Path | None = None
    ) -> None:
        self._detector, self.false_alarm = PartDetector(detector), false_alarm
        bare = type(data)(x=data.x, edge_index=data.edge_index)
        self._journal = None if journal is None else Journal(journal, fingerprint(bare))
        self._changing, self._compacting = threading.RLock(), threading.Lock()
        self.version, self.changed_at, self.whole_at, self.whole_seconds = 0, 0.0, 0.0, 0.0
        self.graph = self._restored(data)
        self.columns = Columns(len(self.graph.x), self._detector.class_names)
        self._rows = np.empty(0, np.float32)
        self.rescore()

    def _restored(self, data: Data) -> EvolvingGraph:
        """The graph, with what was acknowledged before the process ended."""
        journal, undirected = self._journal, self._detector.undirected
        if journal is None:
            return EvolvingGraph(data, undirected=undirected)
        based = data if journal.base.file is None else journal.base.data(journal.path)
        graph = EvolvingGraph(based, undirected=undirected)
        with progress("Replaying the journal", journal.count) as advance:
            for record in journal.changes():
                graph.apply(Changes.of(record, graph.num_features))
                advance()
        self.version = journal.base.version + journal.count
        return graph

    def compact(self) -> bool:
        """Write the graph beside its journal, which begins from it then, once that has grown larger than the graph.

        So the disk holds at most some copies of the graph, and a restart takes the time of reading one, however long
        changes go on. They wait while the graph is copied in memory, not while it is written.

        Returns:
            Whether it was done.

        Raises:
            OSError: It cannot be written, as on a full disk; then the journal is as it was.
        """
        journal = self._journal
        if journal is None or journal.size <= max(ROOM, self.graph.size) or not self._compacting.acquire(False):
            return False
        try:
            with self._changing:
                data, version, end = self.data(), self.version, journal.end
            snapshot = Snapshot.written(journal.path, data, version)
            with self._changing:
                journal.rebase(snapshot, end)
            return True
        finally:
            self._compacting.release()

    @property
    def reach(self) -> int:
        """From how many hops away nodes count in a score."""
        return self._detector.reach

    def swap(self, detector: Detector) -> None:
        """Another detector in place of this one: all nodes are scored by it before any of its scores is shown."""
        new = PartDetector(detector)
        same = (new.undirected, new.num_features) == (self.graph.undirected, self.graph.num_features)
        require(same, "detector", "read the kept graph as the one before did", "other features or directions of edges")
        with self._changing:
            scored = self._whole(new)
            columns = Columns(len(self.graph.x), new.class_names)
            columns.put(scored.nodes, scored.decisions)
            self._rows = _put(np.empty(0), scored, len(self.graph.x))
            self._detector, self.columns = new, columns

    def rescore(self) -> Decisions:
        """Score the whole graph; a method that weighs evidence takes its weights from then on."""
        with self._changing:
            scored = self._whole(self._detector)
            self._keep(scored)
            return scored.decisions

    def _whole(self, detector: PartDetector) -> _Scored:
        begun = time.perf_counter()
        nodes, data = self.graph.whole()
        decisions, read = detector.whole(data, false_alarm=self.false_alarm)
        self.whole_at, self.whole_seconds = time.time(), time.perf_counter() - begun
        return _Scored(nodes, replace(decisions, ids=self.graph.names(nodes)), nodes, read.rows.numpy(), whole=True)

    def _keep(self, scored: _Scored, gone: Sequence[int] = ()) -> None:
        self._rows = _put(self._rows, scored, len(self.graph.x))
        self.columns.put(scored.nodes, scored.decisions, gone)

    def change(self, changes: Changes) -> Change:
        """Make the changes; once this returns they outlive the process.

        Raises:
            InputError: A change breaks a rule, or cannot be scored; then none of them is made.
            OSError: The journal cannot be written; then none of them is made.
        """
        with self._changing:
            self.graph.check(changes)
            gone = [self.graph.number(name) for name in changes.remove_nodes]
            seeds = self.graph.apply(changes)
            try:  # what cannot be scored is not kept: it could not be read again either
                scored = self._touched(seeds)
                if self._journal is not None:
                    self._journal.append(changes.to_record())
            except BaseException:
                self.graph.undo()
                raise
            self.version += 1
            self.changed_at = time.time()
            self._keep(scored, [number for number in gone if number is not None])
            return Change(scored.decisions, scored.whole, self.version)

    def _touched(self, seeds: Any) -> _Scored:
        """All nodes that the changes affect: what they are near to is read again, of the others it is known."""
        if len(seeds) == 0:  # as where a node without edges went
            return _Scored(seeds, self._detector.nothing(), seeds, self._rows[:0])
        scope = self._scope(seeds)
        if scope is None:
            return self._whole(self._detector)
        part, wider = scope
        read = self._detector.read(*self.graph.around(part), part.where)
        return _Scored(wider.asked, self._decided(wider, part.asked, read), part.asked, read.rows.numpy())

    def _scope(self, seeds: Any) -> tuple[Part, Part] | None:
        """Nodes near a change with what determines their scores, and affected ones; None: most of the graph."""
        detector, most = self._detector, self.graph.count // HALF
        near = self.graph.reached(seeds, detector.near, most)
        part = None if near is None else self.graph.part(near, detector.near, most)
        touched = None if part is None else self.graph.reached(seeds, detector.reach, most)
        wider = None if touched is None else self._propagating(touched, most)
        return None if part is None or wider is None else (part, wider)

    def touched_by(self, count: int) -> int | None:
        """How many nodes a change of `count` nodes over the graph scores again; None where it is the whole graph."""
        with self._changing:
            there = np.flatnonzero(self.graph.alive)
            scope = self._scope(there[:: max(1, len(there) // count)][:count])
            return None if scope is None else len(scope[1].asked)

    def _propagating(self, touched: Any, most: int) -> Part | None:
        """These nodes and all whose rows are propagated to them."""
        steps = self._detector.steps
        return Part(touched, touched, NO_EDGES) if steps == 0 else self.graph.part(touched, steps - 1, most)

    def _decided(self, part: Part, near: Any, read: Read) -> Decisions:
        """About those of the given nodes that a change affects; `near` are those that were read again."""
        rows = grown(self._rows, len(self.graph.x))[part.kept]
        rows[np.searchsorted(part.kept, near)] = read.rows.numpy()
        places = torch.from_numpy(np.searchsorted(part.asked, near))
        predicted, probabilities = (
            None if new is None else torch.from_numpy(known).index_copy(0, places, new)
            for known, new in zip(self.columns.classes(part.asked), read[1:], strict=True)
        )
        return self._detector.decided(
            torch.from_numpy(rows), part.edge_index, part.where, self.graph.names(part.asked),
            Read(read.rows, predicted, probabilities), false_alarm=self.false_alarm,
        )  # fmt: skip

    def explain(self, name: Id) -> Explanation | None:
        """Why a node has its score; None where there is no such node."""
        with self._changing:
            number, everyone = self.graph.number(name), self.graph.count
            if number is None:
                return None
            around = self.graph.receptive_field(np.array([number]), EGO, everyone)  # whose scores are drawn
            part = self.graph.part(around, self.reach, everyone)
            assert part is not None  # as it may be all of the graph
            names, detector = self.graph.names(part.kept), self._detector
            data, out_degrees = self.graph.around(part)
        return detector.explain(data, out_degrees, names, int(np.searchsorted(part.kept, number)))

    def data(self) -> Data:
        """The graph as it is now, with its ids."""
        with self._changing:
            nodes, data = self.graph.whole()
            data.node_id = self.graph.names(nodes)
            return data

    def close(self) -> None:
        """Let another process have the journal."""
        with self._compacting:
            journal, self._journal = self._journal, None
            if journal is not None:
                journal.close()


def _put(rows: Any, scored: _Scored, size: int) -> Any:
    """The rows of all nodes, those that were read among them."""
    if scored.whole:
        rows = np.zeros((size, *scored.rows.shape[1:]), scored.rows.dtype)
    rows = grown(rows, size)
    rows[scored.read] = scored.rows
    return rows
