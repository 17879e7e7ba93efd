"""A graph that is kept and changes, with what a detector says about every node of it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gnnsafe.detector import Decisions, Detector
from gnnsafe.detector.parts import PartDetector
from gnnsafe.errors import require
from gnnsafe.evolving.changes import Changes, Id
from gnnsafe.evolving.graph import EvolvingGraph, Part
from gnnsafe.evolving.journal import Journal
from gnnsafe.evolving.listing import Columns
from gnnsafe.explanation import Explanation
from gnnsafe.graph import Data, fingerprint
from gnnsafe.progress import progress

__all__ = ["Change", "ScoredGraph"]

HALF = 2  # a part that is over half of the graph costs as much as the whole of it
EGO = 2  # hops around a node that are drawn, at most


class Change(NamedTuple):
    """What came of some changes."""

    decisions: Decisions
    """About the nodes that are touched and still there."""
    whole: bool
    """Whether the graph was scored as a whole, since most of it was touched."""
    version: int
    """How many sets of changes were made."""


class ScoredGraph:
    """A kept graph: a change is made, all whom it touches are scored again, and it is journalled; or it is undone.

    Scores of the touched are those of a full scoring, for a method that weighs evidence by the graph (`TwoScale`) by
    the weights of the last whole scoring, as `Detector.score_new` has it: at the start, when over half of the graph is
    touched, and by `rescore`. One thread changes it at a time; who reads waits for no scoring.
    """

    def __init__(
        self, detector: Detector, data: Data, *, false_alarm: float = 0.05, journal: Path | None = None
    ) -> None:
        self._detector, self.false_alarm = PartDetector(detector), false_alarm
        self.graph = EvolvingGraph(data, undirected=detector.undirected)
        bare = type(data)(x=data.x, edge_index=data.edge_index)
        self._journal = None if journal is None else Journal(journal, fingerprint(bare))
        self._changing = threading.RLock()
        self.version, self.changed_at, self.whole_at = 0, 0.0, 0.0
        self._replay()
        self.columns = Columns(len(self.graph.x), self._detector.class_names)
        self.rescore()

    def _replay(self) -> None:
        """What was acknowledged before the process ended, made again."""
        if self._journal is None:
            return
        with progress("Replaying the journal", self._journal.count) as advance:
            for record in self._journal.changes():
                self.graph.apply(Changes.of(record, self.graph.num_features))
                self.version += 1
                advance()

    @property
    def reach(self) -> int:
        """From how many hops away nodes count in a score."""
        return self._detector.reach

    def swap(self, detector: Detector) -> None:
        """Another detector in place of this one: all nodes are scored by it before anybody sees one of its scores."""
        new = PartDetector(detector)
        same = (new.undirected, new.num_features) == (self.graph.undirected, self.graph.num_features)
        require(same, "detector", "read the kept graph as the one before did", "other features or directions of edges")
        with self._changing:
            nodes, decisions = self._whole(new)
            columns = Columns(len(self.graph.x), new.class_names)
            columns.put(nodes, decisions)
            self._detector, self.columns = new, columns

    def rescore(self) -> Decisions:
        """Score the whole graph; a method that weighs evidence takes its weights from then on."""
        with self._changing:
            nodes, decisions = self._whole(self._detector)
            self.columns.put(nodes, decisions)
            return decisions

    def _whole(self, detector: PartDetector) -> tuple[Any, Decisions]:
        nodes, data = self.graph.whole()
        decisions = detector.whole(data, false_alarm=self.false_alarm)
        self.whole_at = time.time()
        return nodes, replace(decisions, ids=self.graph.names(nodes))

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
                nodes, decisions, whole = self._touched(seeds)
                if self._journal is not None:
                    self._journal.append(changes.to_record())
            except BaseException:
                self.graph.undo()
                raise
            self.version += 1
            self.changed_at = time.time()
            self.columns.put(nodes, decisions, [number for number in gone if number is not None])
            return Change(decisions, whole, self.version)

    def _touched(self, seeds: Any) -> tuple[Any, Decisions, bool]:
        if len(seeds) == 0:  # as where a node without edges went
            return seeds, self._detector.nothing(), False
        most = self.graph.count // HALF
        touched = self.graph.reached(seeds, self.reach, most)
        part = None if touched is None else self.graph.part(touched, self.reach, most)
        return (*self._whole(self._detector), True) if part is None else (part.asked, self._decided(part), False)

    def _decided(self, part: Part) -> Decisions:
        names = self.graph.names(part.asked)
        return self._detector.part(part.data, part.out_degrees, part.where, names, false_alarm=self.false_alarm)

    def explain(self, name: Id) -> Explanation | None:
        """Why a node has its score; None where there is no such node."""
        with self._changing:
            number, everyone = self.graph.number(name), self.graph.count
            if number is None:
                return None
            around = self.graph.heard(np.array([number]), EGO, everyone)  # whose scores are drawn
            part = self.graph.part(around, self.reach, everyone)
            assert part is not None  # as it may be all of the graph
            names, place, detector = (
                self.graph.names(part.kept),
                int(np.searchsorted(part.kept, number)),
                self._detector,
            )
        return detector.explain(part.data, part.out_degrees, names, place)

    def data(self) -> Data:
        """The graph as it is now, with its ids."""
        with self._changing:
            nodes, data = self.graph.whole()
            data.node_id = self.graph.names(nodes)
            return data

    def close(self) -> None:
        """Let another process have the journal."""
        if self._journal is not None:
            self._journal.close()
