"""A study: the cells of a plan as tasks, each of which runs its recipes and keeps what came of them."""

from __future__ import annotations

import math
import os
import platform
import re
import sys
from collections.abc import Collection, Hashable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from gnnsafe.bench.code import method_version, training_version
from gnnsafe.bench.cores import ENDED, each, give_back_memory
from gnnsafe.bench.plan import Cell
from gnnsafe.bench.recipes import Recipe, demo_recipes
from gnnsafe.bench.run import HIDDEN, Result, attempts, run
from gnnsafe.bench.store import Record, read, write
from gnnsafe.bench.trained import TrainedModels
from gnnsafe.datasets import DATASETS, SAME_GRAPH, Benchmark
from gnnsafe.graph import fingerprint
from gnnsafe.models import MODELS, Model

__all__ = [
    "CellTask",
    "carry_out",
    "chains",
    "data_fingerprint",
    "demo_cell",
    "given_up",
    "memory_needed",
    "tasks",
]

OTHER_VERSIONS = {
    "python": platform.python_version(),
    **{name: metadata.version(name) for name in ("numpy", "scipy", "torch-geometric")},
}
START_MEMORY = 700.0  # MiB, of a process with torch and PyG
NODE_MEMORY = 0.025  # MiB: activations, gradients and many methods' scores of a node, with room; a guess
MODELS_FOLDER = "models"  # of the store, by the code that trained them
MOVED = ("label", "domain", "time", "control-half")  # shifts whose ID graph is their own


@dataclass(frozen=True)
class CellTask:
    """A cell, what to run in it, on which data (their root and fingerprint), by which version, where to keep it.

    It is run on the `device`; records say which where it is not the CPU.
    """

    cell: Cell
    recipes: list[Recipe]
    root: str | None
    data: str
    version: str
    folder: Path
    models: tuple[type[Model], ...] = ()
    """The classes of the recipes' models: a worker that is handed them has imported what registers them."""
    device: str = "cpu"

    def record(self, recipe: Recipe, **outcome: Any) -> Record:
        """What is known of a run beforehand, and its outcome."""
        return Record(
            **asdict(self.cell),
            method=recipe.name,
            method_repr=repr(recipe.method),
            objective_repr=repr(recipe.objective),
            exposure=recipe.objective.needs_exposure,
            code=recipe.code,
            lr=recipe.lr,
            chosen=recipe.chosen,
            data=self.data,
            versions=self._versions(recipe),
            created=datetime.now(UTC).isoformat(timespec="microseconds"),
            **outcome,
        )

    def _versions(self, recipe: Recipe) -> dict[str, str]:
        ours = {"gnnsafe": self.version, "method": method_version(recipe.method)}
        return {**ours, "torch": self._torch, **OTHER_VERSIONS}

    @property
    def _torch(self) -> str:
        return torch.__version__ if self.device == "cpu" else f"{torch.__version__} on {self.device}"

    def runs(self) -> list[Record]:
        """What is known of its runs beforehand."""
        return [self.record(recipe) for recipe in self.recipes]

    def without(self, finished: Collection[Hashable]) -> CellTask:
        """What is left to do."""
        return replace(self, recipes=[recipe for recipe in self.recipes if self.record(recipe).key not in finished])

    @property
    def group(self) -> Hashable:
        """Tasks of one group share what is trained on their ID graph: their shifts leave it alone."""
        shift, entry = self.cell.shift, DATASETS[self.cell.dataset]
        if shift == "control-nothing" and entry.graph is None:  # on the ID graph of the data set's own shift
            shift = next(iter(entry.own))
        if shift == SAME_GRAPH:
            shift = "time"
        return replace(self.cell, shift=shift if shift in MOVED else "")

    def benchmark(self) -> Benchmark:
        """What the recipes are run on."""
        return self.cell.benchmark(self.root)

    def carry_out(self) -> list[Record]:
        """Run the recipes and keep the records, those of failed runs too; returns the records."""
        _forget_peak_memory()
        try:
            benchmark = self.benchmark().to(self.device)
        except Exception as error:
            records = [self.record(recipe, error=_reason(error)) for recipe in self.recipes]
        else:
            cell = self.cell
            trainer = training_version(self.version.partition("+")[0])
            kept = TrainedModels(self.folder / MODELS_FOLDER / f"{trainer} torch {self._torch}")
            outcomes = list(attempts(benchmark, self.recipes, epochs=cell.epochs, selection=cell.selection, kept=kept))
            sizes = (benchmark.id.num_features, HIDDEN, benchmark.num_classes)
            records = [
                self.record(
                    recipe,
                    source=_public(benchmark.source, self.root),
                    model=f"{MODELS[recipe.model].__name__}{sizes}",
                    **fields,
                )
                for recipe, outcome in outcomes
                for fields in _fields(outcome)
            ]
        write(self.folder, records)
        return records


def _fields(outcome: list[Result] | Exception) -> list[dict[str, Any]]:
    if isinstance(outcome, Exception):
        return [{"error": _reason(outcome)}]
    return [
        {
            "ood": result.ood,
            "metrics": result.detection._asdict(),
            "accuracy": result.accuracy,
            "curves": result.curves,
            "val_loss": result.val_loss,
            "epoch": result.epoch,
            "within_degrees": result.within_degrees,
            "seconds": result.seconds,
            "memory": _peak_memory(),
        }
        for result in outcome
    ]


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _public(source: str, root: str | None) -> str:
    """Where data came from, without the names of this machine's folders above it."""
    for folder in (root, os.environ.get("GNNSAFE_DATA"), Path.home()):
        source = source.replace(f"{Path(folder)}/", "") if folder else source
    return source


def _forget_peak_memory() -> None:
    """Where Linux lets a process do so: what is held from now on is the cell's, not what larger cells left behind."""
    give_back_memory()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def _peak_memory() -> float:
    """The most that this process has held, in MiB; where /proc does not say it, its parent's peak may count, too."""
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8"))):
        return int(found[1]) / 2**10
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def tasks(
    cells: Iterable[tuple[Cell, list[Recipe]]], *, root: str | None, version: str, folder: Path, device: str = "cpu"
) -> list[CellTask]:
    """A task for each cell that has recipes; each data set is read once, here, for its fingerprint."""
    cells = [(cell, recipes) for cell, recipes in cells if recipes]
    data = {dataset: data_fingerprint(dataset, root) for dataset in {cell.dataset for cell, _ in cells}}
    return [
        CellTask(cell, recipes, root, data[cell.dataset], version, folder, _models(recipes), device)
        for cell, recipes in cells
    ]


def _models(recipes: list[Recipe]) -> tuple[type[Model], ...]:
    return tuple(MODELS[name] for name in dict.fromkeys(recipe.model for recipe in recipes))


def chains(work: Iterable[CellTask]) -> list[list[CellTask]]:
    """Tasks for one process, after each other: those that share what is trained."""
    groups: dict[Hashable, list[CellTask]] = {}
    for task in work:
        groups.setdefault(task.group, []).append(task)
    return list(groups.values())


def carry_out(chain: list[CellTask]) -> int:
    """Carry out tasks in their order; returns how many."""
    for task in chain:
        task.carry_out()
    return len(chain)


def given_up(chain: list[CellTask]) -> int:
    """Of tasks whose process was ended, the one in its hands has failed, and those after it get another; how many.

    That one is the first that is not finished, since tasks are carried out in their order.
    """
    finished = {record.key for record in read(chain[0].folder)[0] if not record.error}
    left = [task for task in (task.without(finished) for task in chain) if task.recipes]
    if left:
        first, *others = left
        write(first.folder, [first.record(recipe, error=f"WorkerError: {ENDED}") for recipe in first.recipes])
        for _ in each(carry_out, [others] if others else [], jobs=1, lost=given_up, memory=math.inf):
            pass
    return len(chain)


def memory_needed(work: Iterable[CellTask]) -> float:
    """MiB that the largest of these tasks may need: what a process has at its start, and so much for each node."""
    largest = max((DATASETS[task.cell.dataset].nodes for task in work), default=0)
    return START_MEMORY + NODE_MEMORY * largest


def data_fingerprint(dataset: str, root: str | None) -> str:
    """A hash of the data set's tensors as seed 0 finds them, before any shift is drawn: the same for all its cells."""
    entry = DATASETS[dataset]
    if entry.graph is not None:
        graphs = [entry.graph(root, 0)[0]]
    else:
        (inside, exposure, outside), _ = next(iter(entry.own.values()))(root, 0)
        graphs = [inside, exposure, *outside.values()]
    return fingerprint(*graphs)


def demo_cell(cell: Cell, root: str | None) -> tuple[str, list[Result]]:
    """Where the data came from, and the results of the demo's recipes."""
    benchmark = cell.benchmark(root)
    return benchmark.source, run(benchmark, demo_recipes(cell.shift), epochs=cell.epochs)
