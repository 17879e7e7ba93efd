"""What a history says now: calm or alarm, since when, and what changed; as JSON and as one line of a log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gnnsafe.errors import require
from gnnsafe.monitoring.drift import Drift, changed_classes, changed_features, flagged_regions
from gnnsafe.monitoring.history import Judged

__all__ = ["Judgement"]

LARGEST = 700.0  # of which exp is still a number


@dataclass(frozen=True)
class Judgement:
    """All entries of one detector, judged at an error rate."""

    entries: Sequence[Judged]
    """The oldest first; at least one."""
    alpha: float
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require(len(self.entries) > 0, "history", "have an entry", "none", "gnnsafe monitor DETECTOR GRAPH adds one")
        require(0 < self.alpha < 1, "alpha", "lie in (0, 1)", self.alpha)

    @property
    def last(self) -> Judged:
        """The newest entry."""
        return self.entries[-1]

    @property
    def since(self) -> Judged | None:
        """The entry by which the alarm was raised; None while it is calm."""
        return next((one for one in self.entries if one.raised(self.alpha)), None)

    @property
    def alarm(self) -> bool:
        """Whether the alarm was raised: it stays so until another detector, or another history, begins again."""
        return self.since is not None

    def features(self) -> list[Drift]:
        """The features that changed most since the first entry."""
        return changed_features(self.entries[0].entry.features, self.last.entry.features, self.feature_names)

    def classes(self) -> list[Drift]:
        """The classes whose share changed most since the first entry."""
        return changed_classes(self.entries[0].entry.classes, self.last.entry.classes)

    def regions(self) -> list[Drift]:
        """The parts of the newest graph with most flagged nodes."""
        return flagged_regions(self.last.entry.regions, self.last.entry.level)

    def to_dict(self) -> dict[str, Any]:
        """All of it about the newest entry, as JSON has it."""
        last, since = self.last, self.since
        changes = {"features": self.features(), "classes": self.classes(), "regions": self.regions()}
        return {
            "status": "alarm" if self.alarm else "calm", "alpha": self.alpha, "threshold": 1 / self.alpha,
            "martingale": _value(last.log_value), "peak": _value(last.log_peak),
            "log_martingale": last.log_value, "log_peak": last.log_peak, "loudest": last.loudest,
            "since": since and {"number": since.number, "time": since.entry.time, "name": since.entry.name},
            "entries": len(self.entries), "counted": last.counted, "total": last.total, "number": last.number,
            "entry": last.entry.to_dict(),
            "changed": {name: [asdict(change) for change in found] for name, found in changes.items()},
        }  # fmt: skip

    def log_line(self) -> dict[str, Any]:
        """One line of a structured log."""
        last, entry, since = self.last, self.last.entry, self.since
        return {
            "event": "gnnsafe.monitor", "time": entry.time, "status": "alarm" if self.alarm else "calm",
            "since": since and since.entry.time, "number": last.number, "graph": entry.name, "nodes": entry.nodes,
            "counted": last.counted, "flagged": entry.flagged, "log_martingale": round(last.log_value, 3),
            "log_peak": round(last.log_peak, 3), "alpha": self.alpha, "loudest": last.loudest,
            "accuracy": entry.accuracy and round(entry.accuracy.value, 4), "detector": entry.detector,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """The same for people."""
        last, entry = self.last, self.last.entry
        low, high = entry.expected
        since = self.since
        verdict = (
            f"calm: the martingale is at {_short(last.log_value)}, its highest {_short(last.log_peak)}; the alarm is "
            f"at {1 / self.alpha:,.0f}"
            if since is None
            else f"ALARM since {since.entry.time} (entry {since.number}, {since.entry.name}) by {since.loudest}; the "
            f"martingale's highest is {_short(last.log_peak)}, the alarm at {1 / self.alpha:,.0f}"
        )
        counted = f"{entry.nodes:,} nodes, of which {last.counted:,} were new and counted ({last.total:,} so far)"
        share = f"{entry.flagged / entry.nodes:.1%} flagged, {low:.1%} to {high:.1%} expected"
        doubt = "" if since is None else ", not to be relied on after an alarm"
        known = [] if entry.accuracy is None else [
            f"estimated accuracy of the nodes not flagged: {entry.accuracy.value:.1%} ± {2 * entry.accuracy.error:.1%}"
            f"{doubt}"
        ]  # fmt: skip
        return [verdict, f"{entry.name or entry.graph}: {counted}; {share}", *known]


def _value(log: float) -> float | None:
    """The value of a logarithm; None where it is too large for a number."""
    return math.exp(log) if log < LARGEST else None


def _short(log: float) -> str:
    return f"{math.exp(log):.3g}" if log < math.log(1e6) else f"10^{log / math.log(10):.0f}"
