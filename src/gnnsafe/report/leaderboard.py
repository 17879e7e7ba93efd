"""The leaderboard: every figure of a folder of records, as JSON and as one page that works offline."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from statistics import fmean, median
from typing import Any

from gnnsafe.bench.store import Record
from gnnsafe.bench.summary import SeedSummary, summaries
from gnnsafe.display import shown
from gnnsafe.report.places import order, ranked_settings, regime_of

__all__ = ["FORMAT", "as_leaderboard_page", "leaderboard"]

FORMAT = 1
CONTROL = "control"
DIGITS = 3
MEAN_OVER = re.compile(", mean over (.+)")  # of a search under the rigorous protocol


def leaderboard(records: Sequence[Record]) -> dict[str, Any]:
    """An entry per method and setting: its figures, and the record behind them."""
    entries: list[dict[str, Any]] = []
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.protocol, record.backbone, record.selection), []).append(record)
    for group in groups.values():
        places, common = {place.method: place for place in order(group)}, ranked_settings(group)
        of: dict[tuple[str, str, str], list[Record]] = {}
        for record in group:
            of.setdefault((record.dataset, record.shift, record.method), []).append(record)
        for found in summaries(group):
            key = (found.dataset, found.shift, found.method)
            told = {"explained": places[found.method].explained(key[:2]), "common": key[:2] in common}
            entries.append(_entry(found, of[key], told))
    return {"format": FORMAT, "entries": entries}


def _entry(found: SeedSummary, records: Sequence[Record], told: dict[str, bool]) -> dict[str, Any]:
    first, within = records[0], [r.within_degrees for r in records if r.within_degrees is not None]
    return {
        "method": shown(found.method),
        "dataset": found.dataset,
        "shift": found.shift,
        "regime": regime_of(found.shift) or CONTROL,
        "backbone": first.backbone,
        "protocol": first.protocol,
        "selection": first.selection,
        "exposure": first.exposure,
        "auroc": round(found.metrics["auroc"][0], DIGITS),
        "interval": _rounded(found.interval["auroc"]),
        "metrics": {name: round(mean, DIGITS) for name, (mean, _) in found.metrics.items()},
        "within_degrees": _rounded(100 * fmean(within) if within else None),
        **told,
        "record": {
            "command": command(first, max(record.seed for record in records) + 1),
            "seeds": sorted({record.seed for record in records}),
            "by_seed": [round(value, DIGITS) for value in found.values["auroc"]],
            "method": shown(first.method_repr),
            "objective": shown(first.objective_repr),
            "model": first.model,
            "how_chosen": {name: shown(how) for name, how in first.chosen.items()},
            "selected_by": first.selection,
            "epochs": first.epochs,
            "epoch": sorted({record.epoch for record in records}),
            "versions": first.versions,
            "data": first.data,
            "source": shown(first.source),
            "code": first.code,
            "seconds": {name: round(median(r.seconds[name] for r in records), 4) for name in first.seconds},
            "memory_mib": round(max(record.memory for record in records)),
            "created": max(record.created for record in records),
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def command(record: Record, seeds: int) -> str:
    """What runs it again; a method of your own by its file."""
    method = "FILE.py" if record.code else re.sub("[ ,]+", "-", record.method.lower())
    over = [found[1] for how in record.chosen.values() if (found := MEAN_OVER.search(how))]
    shifts = over[0].replace(" ", "") if over else record.shift  # one choice for all of these
    words = ["gnnsafe bench", f"--datasets {record.dataset}", f"--shifts {shown(shifts)}", f"--methods {shown(method)}"]
    words += [f"--backbones {record.backbone}", f"--seeds {seeds}", f"--protocol {record.protocol}"]
    words += [f"--epochs {record.epochs}"] * (record.epochs != 200)
    words += ["--search"] * (record.selection == "validation" and any("among" in how for how in record.chosen.values()))
    words += ["--selection test"] * (record.selection == "test")
    device = record.versions["torch"].partition(" on ")[2]
    return " ".join([*words, *([f"--device {shown(device)}"] if device else [])])


def as_leaderboard_page(board: dict[str, Any]) -> str:
    """One file without a network: the figures within it, filters, columns that sort, each number its record."""
    page = (files("gnnsafe.report") / "leaderboard.html").read_text(encoding="utf-8")
    data = json.dumps(board, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return page.replace("/*BOARD*/", data)
