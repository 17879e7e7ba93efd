"""A map of the kept graph: a sample of its nodes, laid out so that neighbours lie near each other."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from gnnsafe.evolving import ScoredGraph

__all__ = ["MapOf", "Sample"]

NODES = 400
LAYOUT_STEPS = 60
STALE = 0.05  # of the graph's changes: a map may be as old as that


class Sample(NamedTuple):
    """Some nodes, where they lie in the unit square, and the edges among them."""

    numbers: list[int]
    places: list[tuple[float, float]]
    edges: list[tuple[int, int]]


class MapOf:
    """The map of a kept graph, laid out again when many changes have come."""

    def __init__(self, kept: ScoredGraph) -> None:
        self._kept, self._lock = kept, threading.Lock()
        self._made: tuple[int, Sample] | None = None

    def sample(self) -> Sample:
        """The sample, laid out."""
        with self._lock:
            version = self._kept.version
            if self._made is None or version - self._made[0] > max(10, STALE * self._kept.graph.count):
                self._made = version, _sampled(self._kept)
            return self._made[1]


def _sampled(kept: ScoredGraph) -> Sample:
    """Half of it from around the most unusual node, half from around random ones: connected pieces show structure."""
    rng, graph = np.random.default_rng(0), kept.graph
    alive = np.flatnonzero(graph.alive)
    unusual = [graph.number(row.id) for row in kept.columns.most_unusual(5)]
    starts = [number for number in unusual if number is not None]
    starts += rng.choice(alive, min(len(alive), 15), replace=False).tolist()
    chosen: dict[int, None] = {}
    for start in starts:
        ball = graph.near(start, NODES // len(starts))
        chosen |= dict.fromkeys(ball)
    numbers = [number for number in chosen if graph.alive[number]][:NODES]
    edges = graph.among(np.array(numbers, np.int64))
    return Sample(numbers, _laid_out(len(numbers), edges, rng), edges)


def _laid_out(count: int, edges: list[tuple[int, int]], rng: Any) -> list[tuple[float, float]]:
    """Springs along edges, all nodes repelling each other  (Fruchterman & Reingold, 1991), in the unit square."""
    places = rng.random((count, 2))
    ends = np.array(edges, np.int64).reshape(-1, 2)
    ideal = 1 / np.sqrt(max(count, 1))
    for step in range(LAYOUT_STEPS):
        apart = places[:, None] - places[None]
        distance = np.sqrt((apart**2).sum(axis=2)) + 1e-6
        move = (apart * (ideal**2 / distance**2)[..., None]).sum(axis=1)
        along = places[ends[:, 0]] - places[ends[:, 1]]
        pull = along * (np.sqrt((along**2).sum(axis=1, keepdims=True)) / ideal)
        np.add.at(move, ends[:, 0], -pull)
        np.add.at(move, ends[:, 1], pull)
        move += (0.5 - places) * ideal  # else pieces drift apart
        length = np.sqrt((move**2).sum(axis=1, keepdims=True)) + 1e-9
        places += move / length * np.minimum(length, 0.1 * (1 - step / LAYOUT_STEPS))
    low, high = places.min(axis=0, initial=0), places.max(axis=0, initial=1)
    return [(float(x), float(y)) for x, y in (places - low) / (high - low)]
