"""One scored graph as an entry of a history, and what of its nodes the alarm may count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor

from gnnsafe.calibration import CalibrationCheck
from gnnsafe.checks import check_mask
from gnnsafe.detector import Decisions, Detector
from gnnsafe.detector.decisions import joined
from gnnsafe.errors import require
from gnnsafe.graph import Graph
from gnnsafe.hashing import content, digest, row_digests
from gnnsafe.held_out import KnownNodes
from gnnsafe.monitoring.accuracy import AccuracyEstimate, estimated_accuracy
from gnnsafe.monitoring.alarm import Alarm
from gnnsafe.monitoring.drift import TwoSample, stability, two_sample
from gnnsafe.monitoring.summaries import (
    FeatureMoments,
    FlaggedRegion,
    by_class,
    class_counts,
    degree_summary,
    feature_summary,
    pooled,
    regions,
)

__all__ = ["FALSE_ALARM", "Entry", "Observation", "detector_digest", "gather", "observe"]

FALSE_ALARM = 0.05  # the level at which nodes are flagged
STIR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Entry:
    """What is kept of one scored graph, whatever its size."""

    time: str
    """UTC, ISO 8601."""
    name: str
    """What the graph is called, such as its path."""
    graph: str
    """A fingerprint of its features and edges."""
    detector: str
    """The detector's hash, see `detector_digest`."""
    nodes: int
    edges: int
    flagged: int
    level: float
    """Of ID nodes at most this share is flagged."""
    expected: tuple[float, float]
    """Where the share flagged lies 95 times in 100 if all nodes are ID and like the calibration nodes."""
    p_values: dict[str, list[int]]
    """Histograms by predicted class, in twentieths of (0, 1]."""
    classes: dict[str, int]
    degrees: dict[str, Any]
    stability: float
    """Population stability index of p-values beside uniform ones."""
    two_sample: TwoSample
    accuracy: AccuracyEstimate | None
    regions: tuple[FlaggedRegion, ...]
    features: FeatureMoments

    def to_dict(self) -> dict[str, Any]:
        """All of it but the features, as JSON has it."""
        return {name: value for name, value in asdict(self).items() if name != "features"}

    @classmethod
    def from_dict(cls, record: dict[str, Any], features: FeatureMoments) -> Entry:
        """The same again."""
        accuracy = record["accuracy"]
        made = {
            "expected": tuple(record["expected"]),
            "two_sample": TwoSample(**record["two_sample"]),
            "accuracy": None if accuracy is None else AccuracyEstimate(**accuracy),
            "regions": tuple(FlaggedRegion(**region) for region in record["regions"]),
            "features": features,
        }
        return cls(**{**record, **made})


@dataclass(frozen=True, eq=False)
class Observation:
    """One scored graph: what `History.append` takes. The entry is kept; the rest is counted by the alarm, and gone."""

    entry: Entry
    decisions: Decisions
    """Of all nodes, from the same forward."""
    watching: tuple[tuple[str, ...], Tensor]
    """What is watched, and its values at the calibration nodes; see `Detector.watching`."""
    candidates: NDArray[np.int64]
    """Nodes used neither for training nor for calibration."""
    digests: NDArray[np.uint32]
    """A hash of the features of each candidate: by it a node that comes again is known."""
    edge_index: Tensor
    feature_names: tuple[str, ...] | None = None

    @property
    def calm(self) -> Alarm:
        """The alarm of this detector before any node came, for a history that does not know it yet."""
        names, known = self.watching
        return Alarm.watching(names, known.double().numpy())

    def scores(self, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """What is watched at some of the candidates, [nodes, scores]."""
        assert self.decisions.watched is not None
        return self.decisions.watched.double().cpu().numpy()[self.candidates[chosen]]


def observe(
    detector: Detector,
    data: Graph,
    *,
    name: str = "",
    false_alarm: float = FALSE_ALARM,
    mask: Tensor | None = None,
    time: datetime | None = None,
    batch_size: int | None = None,
    hops: int | None = None,
) -> Observation:
    """A graph scored and summarised, from one forward pass; `history.append` of it judges the stream.

    Args:
        detector: Fitted and calibrated.
        data: The graph.
        name: What to call it in the history, such as its path.
        false_alarm: Of ID nodes at most this share is flagged.
        mask: The nodes that came: no others are counted by the alarm. By default all used neither for training nor
            for calibration; those that were counted before are never counted again.
        time: When; now by default.
        batch_size: On how many nodes at a time the model runs; see `Detector.score`.
        hops: With a `batch_size`, the model's receptive field; see `Detector.score`.

    Returns:
        The entry, the decisions about all nodes, and what the alarm needs.
    """
    data = detector.prepared(data)
    decided = detector.decide(data, false_alarm=false_alarm, batch_size=batch_size, hops=hops)
    require(len(decided) > 0, "data", "have a node", "none")
    candidates, digests = _candidates(detector, data, mask)
    entry = _entry(
        detector, decided, data.edge_index, feature_summary(data.x), _fingerprint(data), name=name, level=false_alarm,
        time=time,
    )  # fmt: skip
    return _observation(detector, entry, decided, candidates, digests, data.edge_index)


def gather(detector: Detector, observed: Sequence[Observation], *, name: str) -> Observation:
    """Several graphs as one, in the order in which they came: a node that several of them have counts once.

    Args:
        detector: The one that observed them all, at one `false_alarm`.
        observed: At least one.
        name: What to call them together.

    Returns:
        What `History.append` takes, for a single entry with the time of the last.
    """
    sizes, last = [len(one.decisions) for one in observed], observed[-1].entry
    starts = np.cumsum([0, *sizes[:-1]])
    candidates = np.concatenate([one.candidates + start for one, start in zip(observed, starts, strict=True)])
    digests = np.concatenate([one.digests for one in observed])
    first = np.sort(np.unique(digests, return_index=True)[1])
    edges = [one.edge_index + int(start) for one, start in zip(observed, starts, strict=True)]
    decided, edge_index = joined([one.decisions for one in observed]), torch.cat(edges, dim=1)
    features = pooled([one.entry.features for one in observed], sizes)
    fingerprint = xxhash.xxh3_128_hexdigest("".join(one.entry.graph for one in observed).encode())
    entry = _entry(
        detector, decided, edge_index, features, fingerprint, name=name, level=last.level,
        time=datetime.fromisoformat(last.time),
    )  # fmt: skip
    return _observation(detector, entry, decided, candidates[first], digests[first], edge_index)


def _observation(
    detector: Detector,
    entry: Entry,
    decided: Decisions,
    candidates: NDArray[np.int64],
    digests: NDArray[np.uint32],
    edge_index: Tensor,
) -> Observation:
    features = None if detector.feature_names_ is None else tuple(map(str, detector.feature_names_))
    return Observation(entry, decided, detector.watching(), candidates, digests, edge_index, features)


def detector_digest(detector: Detector) -> str:
    """What tells one fitted and calibrated detector from another, saved and loaded or not: 128 bits as text."""
    hashed = xxhash.xxh3_128()
    for text in (detector.weights_, repr(detector.method), detector.num_features_, detector.undirected):
        hashed.update(f"{text};".encode())
    for values in (detector.calibrated().scores, detector.watching()[1]):
        hashed.update(content(values))
    return hashed.hexdigest()


def _entry(
    detector: Detector,
    decided: Decisions,
    edge_index: Tensor,
    features: FeatureMoments,
    fingerprint: str,
    *,
    name: str,
    level: float,
    time: datetime | None,
) -> Entry:
    assert decided.watched is not None
    known = detector.watching()[1]
    histograms = by_class(decided)
    (check,) = CalibrationCheck.of(decided.p_values, detector.calibrated(), (level,)).levels
    flagged = decided.flags.cpu()
    return Entry(
        time=(time or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds"),
        name=name,
        graph=fingerprint,
        detector=detector_digest(detector),
        nodes=len(decided),
        edges=int(edge_index.shape[1]),
        flagged=int(flagged.sum()),
        level=level,
        expected=check.expected,
        p_values=histograms,
        classes=class_counts(decided),
        degrees=degree_summary(edge_index, len(decided)),
        stability=stability(np.sum(list(histograms.values()), axis=0)),
        two_sample=two_sample(decided.watched[:, 0], known[:, 0]),
        accuracy=estimated_accuracy(detector.calibrated(), decided.probabilities, decided.flags),
        regions=tuple(regions(decided, edge_index)),
        features=features,
    )


def _candidates(detector: Detector, data: Graph, mask: Tensor | None) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """The nodes that may be counted, and a hash of each.

    A node is known again by its features, and as the k-th that has them: of nodes that are alike as many count as
    have come. Those used to train, validate or calibrate come first among them, so that a twin has one place whether
    the graph is the training graph or only holds its nodes. Where most nodes share theirs with another, as where all
    have the same, features tell nothing, and the node's number is hashed with the graph instead: then only a graph
    that comes again as a whole is known.
    """
    nodes = int(data.x.shape[0])
    rows = row_digests(data.x).numpy()
    free = np.ones(nodes, dtype=bool) if mask is None else check_mask("mask", mask, nodes).cpu().numpy().copy()
    telling = 2 * len(np.unique(rows)) > nodes
    used, elsewhere = np.zeros(nodes, dtype=bool), list[KnownNodes]()
    for known in _used(detector):
        if not telling or np.array_equal(known.nodes.numpy(), rows):
            used |= known.within(KnownNodes.of(data, torch.ones(nodes, dtype=torch.bool, device="cpu"))).numpy()
        elif known.mask.any():
            elsewhere.append(known)
    places = _places(rows, used)
    for known in elsewhere:
        found, counts = np.unique(known.nodes[known.mask].numpy(), return_counts=True)
        where = np.searchsorted(found, rows).clip(max=len(found) - 1)
        used |= (found[where] == rows) & (places < counts[where])
    free &= ~used
    if telling:
        keys = rows.astype(np.uint64) + places.astype(np.uint64) * STIR
    else:
        keys = np.arange(nodes, dtype=np.uint64) + np.uint64(int(_fingerprint(data)[:16], 16))
    candidates = free.nonzero()[0]
    keys = keys[candidates]
    keys ^= keys >> np.uint64(29)  # low bits of a row's hash are mostly zeros where features are round
    return candidates, ((keys * STIR) >> np.uint64(32)).astype(np.uint32)


def _used(detector: Detector) -> list[KnownNodes]:
    """The nodes used to train, validate or calibrate it: those of one graph together."""
    used = detector.used_
    assert used is not None  # as it is fitted
    found: list[KnownNodes] = []
    for known in (used.taught, used.validated, used.calibrated):
        if known is None:
            continue
        same = next((one for one in found if torch.equal(one.nodes, known.nodes)), None)
        if same is not None:
            found.remove(same)
            known = replace(known, mask=known.mask | same.mask)
        found.append(known)
    return found


def _places(rows: NDArray[np.int64], used: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many nodes with the same features come before each, the used ones first.

    >>> _places(np.array([7, 5, 7, 7]), np.array([False, False, True, False])).tolist()
    [1, 0, 0, 2]
    """
    order = np.lexsort((~used, rows))
    ordered = rows[order]
    starts = np.searchsorted(ordered, ordered)
    places = np.empty(len(rows), dtype=np.int64)
    places[order] = np.arange(len(rows)) - starts
    return places


def _fingerprint(data: Graph) -> str:
    return digest({"x": data.x, "edge_index": data.edge_index})
