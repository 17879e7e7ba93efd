"""Whether records may join the leaderboard: complete, of this code and these data, honestly chosen, reproducible."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from gnnsafe.bench import search, store
from gnnsafe.bench.code import method_version
from gnnsafe.bench.own import own_recipes
from gnnsafe.bench.plan import MOST_SEEDS, Cell, Plan
from gnnsafe.bench.recipes import PUBLISHED, UNCHOSEN, Recipe, backbones
from gnnsafe.bench.run import Result, attempts
from gnnsafe.bench.store import Record
from gnnsafe.bench.study import data_fingerprint
from gnnsafe.datasets import CONTROLS, DATASETS
from gnnsafe.errors import InputError, require, require_known

__all__ = ["FEWEST_SEEDS", "RuleResult", "findings"]

FEWEST_SEEDS = 3
EPOCHS = Plan.epochs
CLOSE = 0.005  # AUROC: another machine's rounding, not another method
CLOSE_OTHERS = 0.02  # the other figures, which turn on fewer nodes
FAILED = "every trial failed"
HONEST = (PUBLISHED, UNCHOSEN, *(step.reason for step in search.SEARCH_STEPS), FAILED)


class RuleResult(NamedTuple):
    """What one rule says of a folder."""

    rule: str
    holds: bool
    text: str


def findings(folder: Path, *, root: str | None, version: str, files: Sequence[str] = ()) -> list[RuleResult]:
    """Rule by rule, in their order; the last, a re-run of one drawn cell, only where all others hold."""
    records, broken = store.read(folder)
    require(bool(records) or bool(broken), str(folder), "hold records of 'gnnsafe bench'", "none")
    found = [
        _whole(records, broken),
        _versions(records, version),
        _epochs(store.select(records).records),
        _data(records, root),
        _seeds(records),
        _honest(records),
        _methods(records, files),
    ]
    if all(finding.holds for finding in found):
        found.append(_reproduced(store.select(records).records, root, files))
    return found


def _finding(rule: str, complaints: Iterable[str], good: str) -> RuleResult:
    wrong = list(dict.fromkeys(complaints))
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return RuleResult(rule, not wrong, wrong[0] + more if wrong else good)


def _whole(records: Sequence[Record], broken: int) -> RuleResult:
    wrong = [f"{broken} lines are damaged, or were changed since they were written"] * bool(broken)
    wrong += [f"failed: {record.run}: {record.error}" for record in store.select(records).failures]
    return _finding("records", wrong, f"{len(records)} records, none damaged or failed")


def _versions(records: Iterable[Record], version: str) -> RuleResult:
    ours = {"gnnsafe": version, "torch": torch.__version__}
    wrong = [
        f"{record.run}: {name} {record.versions[name]}, where {value} would check it"
        for record in records
        for name, value in ours.items()
        if record.versions[name] != value
    ]
    return _finding("versions", wrong, f"gnnsafe {version}, torch {ours['torch']}")


def _epochs(records: Iterable[Record]) -> RuleResult:
    """A page has figures of as many epochs as its last record's: after others it would lose all that it has."""
    wrong = [f"{r.run}: {r.epochs}, where the page's figures are of {EPOCHS}" for r in records if r.epochs != EPOCHS]
    return _finding("epochs", wrong, f"{EPOCHS}, as all figures of the page")


def _data(records: Sequence[Record], root: str | None) -> RuleResult:
    wrong, known = [], sorted({record.dataset for record in records})
    for dataset in known:
        if dataset not in DATASETS or not DATASETS[dataset].available(root):
            wrong.append(f"{dataset} is not available, so that its fingerprint cannot be compared; pass --data")
            continue
        shifts = {record.shift for record in records if record.dataset == dataset} - {*DATASETS[dataset].shifts}
        wrong += [f"{dataset} has no shift {shift}" for shift in sorted(shifts)]
        expected = data_fingerprint(dataset, root)
        others = {record.data for record in records if record.dataset == dataset} - {expected}
        wrong += [f"{dataset} has fingerprint {other}, not {expected}: other data" for other in sorted(others)]
    return _finding("data", wrong, f"fingerprints of {', '.join(known)} agree")


def _seeds(records: Sequence[Record]) -> RuleResult:
    """Of what a page would show of them, each OOD graph by itself."""
    groups: dict[tuple[str, ...], set[int]] = {}
    for record in store.select(records).records:
        setting = (record.dataset, record.shift, record.backbone, record.protocol, record.selection)
        groups.setdefault((*setting, record.method, record.ood), set()).add(record.seed)
    every = {seed for seeds in groups.values() for seed in seeds}
    if odd := sorted(every - {*range(MOST_SEEDS)}):
        return RuleResult("seeds", False, f"seeds are 0, 1, … up to {MOST_SEEDS - 1}, and {odd[0]} is none")
    most = max(every, default=-1) + 1
    wrong = [f"{most} seeds, at least {FEWEST_SEEDS} are asked for"] * (most < FEWEST_SEEDS)
    for (dataset, shift, *_, method, ood), seeds in groups.items():
        if missing := sorted({*range(most)} - seeds):
            where = f" on {ood}" if ood not in ("", shift) else ""
            numbers = ", ".join(map(str, missing))
            wrong.append(f"{dataset} {shift}, {method}{where}: seeds {numbers} of {most} are missing")
    return _finding("seeds", wrong, f"{most} seeds of everything")


def _honest(records: Iterable[Record]) -> RuleResult:
    wrong = []
    for record in records:
        if record.selection != "validation":
            wrong.append(f"{record.run}: chosen on test data (--selection {record.selection})")
        wrong += [
            f"{record.run}: {name} was chosen in a way that is not known ({how})"
            for name, how in record.chosen.items()
            if not any(reason in how for reason in HONEST)
        ]
    return _finding("selection", wrong, "by ID validation and held-out exposure nodes, as recorded")


def _methods(records: Iterable[Record], files: Sequence[str]) -> RuleResult:
    """Each method by each of its settings, whichever of its records is drawn."""
    known = [record for record in records if record.dataset in DATASETS]
    different = {(r.method, r.backbone, r.protocol, r.exposure, r.settings): r for r in known}
    wrong = []
    for record in different.values():
        try:
            _recipe(record, files)
        except InputError as error:
            wrong.append(f"{record.run}: {error}")
    return _finding("methods", wrong, "each is what its name and settings say, by this code")


def _reproduced(records: Sequence[Record], root: str | None, files: Sequence[str]) -> RuleResult:
    """All that was run in one drawn cell, run again."""
    cell, runs = _drawn(records)
    try:
        recipes, benchmark = [_recipe(run[0], files) for run in runs], cell.benchmark(root)
        outcomes = [outcome for _, outcome in attempts(benchmark, recipes, epochs=cell.epochs)]
    except InputError as error:
        return RuleResult("re-run", False, f"{cell.dataset} {cell.shift}, {cell.backbone}, seed {cell.seed}: {error}")
    share, text = max(map(_difference, runs, outcomes))
    return RuleResult("re-run", share <= 1, text)


def _drawn(records: Iterable[Record]) -> tuple[Cell, list[list[Record]]]:
    """A cell, and the records of each of its runs; no control, whose figures are about the same in every seed."""
    cells: dict[Cell, dict[Hashable, list[Record]]] = {}
    for record in records:
        cells.setdefault(_cell(record), {}).setdefault(record.key, []).append(record)
    telling = [cell for cell in cells if cell.shift not in CONTROLS] or [*cells]
    cell = random.SystemRandom().choice(telling)
    return cell, [*cells[cell].values()]


def _difference(run: Sequence[Record], outcome: list[Result] | Exception) -> tuple[float, str]:
    """The figure that differs most, as a share of what it may, and in words."""
    name = run[0].run
    if isinstance(outcome, Exception):
        return math.inf, f"{name}: it failed here ({type(outcome).__name__}: {outcome})"
    again = {result.ood: _figures(result) for result in outcome}
    same = {record.ood: _figures(record) for record in run}
    if again.keys() != same.keys():
        return math.inf, f"{name}: OOD graphs {', '.join(sorted(same))}, where the data have {', '.join(sorted(again))}"
    gaps = {figure: max(abs(again[ood][figure] - same[ood][figure]) for ood in again) for figure in same[run[0].ood]}
    close = {figure: CLOSE if figure == "AUROC" else CLOSE_OTHERS for figure in gaps}
    worst = max(gaps, key=lambda figure: gaps[figure] / close[figure])
    text = f"{name}: {worst} differs by {gaps[worst]:.2g}, at most {close[worst]} is asked for"
    return gaps[worst] / close[worst], text


def _figures(found: Record | Result) -> dict[str, float]:
    """All that a page shows of scores; none among equal degrees is -1, as no figure is."""
    within = -1.0 if found.within_degrees is None else found.within_degrees
    auroc, *others = found.detection._asdict().items()
    return {"AUROC": auroc[1], **dict(others), "accuracy": found.accuracy, "AUROC among equal degrees": within}


def _cell(r: Record) -> Cell:
    return Cell(r.dataset, r.shift, r.seed, r.backbone, r.protocol, r.epochs, r.selection)


def _recipe(record: Record, files: Sequence[str]) -> Recipe:
    """The recipe that the record is of, with its values: gnnsafe's own, or of one of the files."""
    for file in files:
        own_recipes(file)  # which may register a backbone
    require_known("backbone", record.backbone, backbones())
    own = [recipe for file in files for recipe in own_recipes(file, backbone=record.backbone)]
    ours = [recipe for recipe in _cell(record).recipes() if recipe.name == record.method]
    named = [recipe for recipe in own if recipe.name == record.method]
    alone = not ours or all(recipe.method == ours[0].method for recipe in named)  # the same where a file registers it
    require(alone, "methods", "have names of their own", f"{record.method} twice")  # it would take the other's row
    named += ours
    if not named:
        raise InputError(f"no method is called {record.method!r}; pass its file, --methods FILE.py")
    changes: list[Callable[[Recipe], list[Recipe]]] = [step.values for step in search.SEARCH_STEPS]
    for _ in changes:
        named += [value for recipe in named for change in changes for value in change(recipe)]
    for recipe in named:
        found = (repr(recipe.method), repr(recipe.objective), method_version(recipe.method), recipe.code, recipe.lr)
        if found == record.settings[:-1]:
            _check_told(record, recipe)
            return replace(recipe, chosen=record.chosen)
    raise InputError(f"{record.method!r} is not what it was: other code, or settings that no search has")


def _check_told(record: Record, recipe: Recipe) -> None:
    """What the record says of its recipe, beyond its settings: exposure, and how each value came about."""
    require(record.exposure == recipe.objective.needs_exposure, "exposure", "be that of the objective", record.exposure)
    for step in search.SEARCH_STEPS:
        if not step.values(recipe):
            continue
        value, how = step.text(recipe), record.chosen.get(step.name, "")
        given = how == recipe.chosen.get(step.name) and how.startswith(f"{value}, ")
        searched = how.startswith((f"{value}, {step.reason}", f"{value}, {FAILED}"))
        require(given or searched, step.name, f"be {value} as was given or searched for", repr(how))
