"""The audit: what choosing epoch and settings on test data gains, beside what was published."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from gnnsafe.bench import paper
from gnnsafe.bench.search import SEARCH_STEPS
from gnnsafe.bench.store import Record
from gnnsafe.bench.summary import SeedSummary, summaries
from gnnsafe.datasets import CONTROLS
from gnnsafe.report.document import Section
from gnnsafe.report.grid import Grid, GridEntry

__all__ = ["audit_section"]

TEXT = (
    "AUROC in percent, mean over seeds. Published: the paper's figure, from one seed. Test-selected: epoch, learning "
    "rate and margins are those with the highest AUROC on the test data of seed 0 (the epoch: of each seed), so no "
    "honest figure, and never ranked. Honest: {honest}. Gain: test-selected less honest."
)
SEARCHED = "the epoch, learning rate and margins chosen by ID validation and held-out exposure nodes alone"
GIVEN = "the epoch chosen by ID validation nodes, learning rate and margins not searched for ('bench --search')"
HEAD = ["method", "data set", "shift", "published", "test-selected", "honest", "gain"]
NONE = "–"


def audit_section(records: Sequence[Record]) -> Section | None:
    """A row per method and setting that was run both ways, then each method's mean gain; None where none was."""
    honest, chosen = (
        {(s.protocol, s.backbone, *key): found for s, key, found in _by_setting(records, selection)}
        for selection in ("validation", "test")
    )
    both = [key for key in chosen if key in honest]
    if not both:
        return None
    rows: list[list[GridEntry]] = []
    gains: dict[tuple[str, str, str], list[float]] = {}
    for key in sorted(both, key=lambda key: (key[4], key)):
        protocol, backbone, dataset, shift, method = key
        published = paper.published(dataset, shift, method) if (protocol, backbone) == ("paper", "gcn") else None
        ours, theirs = honest[key].metrics["auroc"][0], chosen[key].metrics["auroc"][0]
        gains.setdefault((protocol, backbone, method), []).append(theirs - ours)
        name = ", ".join([dataset, *(word for word in (protocol, backbone) if word not in ("paper", "gcn"))])
        figures = (NONE if published is None else f"{published:.2f}", f"{theirs:.1f}", f"{ours:.1f}")
        rows.append([GridEntry(text) for text in (method, name, shift, *figures, f"{theirs - ours:+.1f}")])
    means = [
        [GridEntry(text) for text in (method, protocol, backbone, str(len(found)), f"{mean(found):+.1f}")]
        for (protocol, backbone, method), found in sorted(gains.items(), key=lambda item: -mean(item[1]))
    ]
    searched = all(_searched(record) for record in records if record.selection == "validation")
    text = TEXT.format(honest=SEARCHED if searched else GIVEN)
    summary = Grid("Mean gain", ["method", "protocol", "backbone", "settings", "gain"], means, left=3)
    return Section("Audit: what choosing on test data gains", [text], [summary, Grid("", HEAD, rows, left=3)])


def _searched(record: Record) -> bool:
    hows = record.chosen.values()
    return bool(hows) and all(any(step.reason in how for step in SEARCH_STEPS) for how in hows)


def _by_setting(records: Sequence[Record], selection: str) -> list[tuple[Record, tuple[str, str, str], SeedSummary]]:
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.selection == selection and record.shift not in CONTROLS:
            groups.setdefault((record.protocol, record.backbone), []).append(record)
    return [
        (group[0], (found.dataset, found.shift, found.method), found)
        for group in groups.values()
        for found in summaries(group)
    ]
