"""A plan: data sets × shifts × backbones × seeds, and the recipes that are run in each of these cells."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from gnnsafe.bench import paper
from gnnsafe.bench.own import own_recipes
from gnnsafe.bench.recipes import Protocol, Recipe, SelectedBy, backbones, recipes, typed
from gnnsafe.datasets import CONTROLS, DATASETS, SAME_GRAPH, Benchmark, load_benchmark
from gnnsafe.errors import InputError, require, require_known, require_whole

__all__ = ["Cell", "Plan", "available_datasets", "read_plan"]

OWN = ".py"
MOST_SEEDS = 1000  # each is a cell or more
PLANTED = ("planted-feature", "planted-structure")
PROTOCOL_SHIFTS = {
    "paper": (*paper.PAPER_SHIFTS, "domain", "time", *CONTROLS),
    "rigorous": (*paper.PAPER_SHIFTS, "domain", "time", SAME_GRAPH, "rewire", *PLANTED, *CONTROLS),
}
OVER_TIME = "pubmed-years"  # in every order of methods
PROTOCOL_METHODS = (*paper.PAPER_METHODS, "GNNSafe, keep")  # of the paper's own study, and what it should have done


@dataclass(frozen=True)
class Cell:
    """One data set under one shift with one backbone and one seed: in it, each objective is trained once."""

    dataset: str
    shift: str
    seed: int
    backbone: str = "gcn"
    protocol: Protocol = "paper"
    epochs: int = 200
    selection: SelectedBy = "validation"
    """What chooses the epoch: ID validation nodes, or, for the audit, the test data."""

    def benchmark(self, root: str | None) -> Benchmark:
        """The data; under the rigorous protocol no training node in new clothes is an OOD test node, the seed draws
        the split too, and the classifier has the ID classes only.
        """
        rigorous: Any = {"test_nodes": "id-test", "split": "random", "head": "id"}
        options = rigorous if self.protocol == "rigorous" else {}
        return load_benchmark(self.dataset, shift=self.shift, seed=self.seed, root=root, **options)

    def recipes(self) -> list[Recipe]:
        """All that there are for it."""
        return recipes(self.dataset, self.shift, protocol=self.protocol, backbone=self.backbone)


@dataclass(frozen=True)
class Plan:
    """What is to be run; shifts and methods are all that there are unless named.

    A method whose name ends in `.py` is a file with methods of your own. The protocol is, unless named, the paper's
    for what its tables have and the rigorous one for all else; where the paper's is named, so are its shifts and
    methods, unless others are. `search` chooses hyper-parameters: see `bench.search`. `selection="test"` is for the
    audit: epoch and hyper-parameters are those that do best on test data.
    """

    datasets: tuple[str, ...]
    shifts: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ("gcn",)
    seeds: int = 5
    protocol: Protocol | None = None
    epochs: int = 200
    search: bool = False
    selection: SelectedBy = "validation"

    def __post_init__(self) -> None:
        require_known("selection", self.selection, get_args(SelectedBy))
        blind = self.selection == "validation" or not self.search
        require(blind, "search", "be left out where selection is 'test', which searches on test data", True)
        if self.protocol is not None:
            require_known("protocol", self.protocol, get_args(Protocol))
        require_whole("seeds", self.seeds, 1)
        require(self.seeds <= MOST_SEEDS, "seeds", f"be at most {MOST_SEEDS}", self.seeds)
        require(isinstance(self.search, bool), "search", "be true or false", repr(self.search))
        require_whole("epochs", self.epochs, 1)
        for name in ("datasets", "shifts", "methods", "backbones"):
            values = getattr(self, name)
            named = isinstance(values, tuple) and all(isinstance(value, str) for value in values)
            require(named, name, "be a list of names", repr(values))
        require(bool(self.datasets), "datasets", "name at least one", "none", "see --data for those available")
        require(bool(self.backbones), "backbones", "name at least one", "none")
        self._check_names()

    def _check_names(self) -> None:
        for dataset in self.datasets:
            require_known("datasets", dataset, DATASETS)
        for file in self._files():
            own_recipes(file)  # which may register a backbone
        for backbone in self.backbones:
            require_known("backbones", backbone, backbones())
        for shift in self.shifts:
            require_known("shifts", shift, dict.fromkeys(s for name in self.datasets for s in DATASETS[name].shifts))
        recipes = {recipe.name: recipe for cell in self._cells() if cell.seed == 0 for recipe in cell.recipes()}
        listed = {typed(name): re.sub("[ ,]+", "-", name.lower()) for name in sorted(recipes)}
        for method in self.methods:
            if not method.endswith(OWN):
                require_known("methods", listed.get(typed(method), method), listed.values())
        for recipe in self._own("gcn"):
            known = recipes.setdefault(recipe.name, recipe)  # the same where the file registers it
            require(known.method == recipe.method, "methods", "have names of their own", f"{recipe.name} twice")

    def cells(self) -> list[tuple[Cell, list[Recipe]]]:
        """The cells with their recipes, seed by seed: an interrupted study has whole seeds."""
        named = self.methods or (PROTOCOL_METHODS if self.protocol == "paper" else ())
        wanted = {typed(method) for method in named if not method.endswith(OWN)}
        own = {backbone: self._own(backbone) for backbone in self.backbones}
        return [
            (cell, list({
                recipe.name: recipe
                for recipe in (*cell.recipes(), *own[cell.backbone])
                if not named or typed(recipe.name) in wanted or recipe in own[cell.backbone]
            }.values()))
            for cell in self._cells()
        ]  # fmt: skip

    def _own(self, backbone: str) -> list[Recipe]:
        return [recipe for file in self._files() for recipe in own_recipes(file, backbone=backbone)]

    def _files(self) -> list[str]:
        return [method for method in dict.fromkeys(self.methods) if method.endswith(OWN)]

    def without_shifts(self) -> list[str]:
        """The data sets that have none of the shifts that were named."""
        return [dataset for dataset in dict.fromkeys(self.datasets) if not self._shifts(dataset)]

    def _cells(self) -> list[Cell]:
        return [
            Cell(dataset, shift, seed, backbone, protocol, self.epochs, self.selection)
            for seed in range(self.seeds)
            for dataset in dict.fromkeys(self.datasets)
            for shift in self._shifts(dataset)
            for protocol in self._protocols(dataset, shift)
            for backbone in dict.fromkeys(self.backbones)
        ]

    def _shifts(self, dataset: str) -> list[str]:
        entry = DATASETS[dataset]
        wanted = self.shifts or PROTOCOL_SHIFTS[self.protocol or "rigorous"]
        return [shift for shift in entry.shifts if shift in wanted]

    def _protocols(self, dataset: str, shift: str) -> tuple[Protocol, ...]:
        """The one that was named, or the paper's for what its tables have; what every order has is run by both."""
        if self.protocol is not None:
            return (self.protocol,)
        tabled = any(paper.in_tables(dataset, name) for name in self._shifts(dataset))
        if (dataset == OVER_TIME and shift != SAME_GRAPH) or (shift in CONTROLS and tabled):
            return ("paper", "rigorous")
        return ("paper",) if paper.in_tables(dataset, shift) else ("rigorous",)


def available_datasets(root: str | None) -> tuple[str, ...]:
    """The paper's data sets whose files are here, or what stands in for them, and PubMed by year."""
    found = [name for name in paper.PAPER_NAMES if DATASETS[name].available(root)]
    found += [
        name for name, other in paper.SUBSTITUTES.items() if other not in found and DATASETS[name].available(root)
    ]
    return (*found, *([OVER_TIME] if DATASETS[OVER_TIME].available(root) else []))


def read_plan(path: Path) -> dict[str, Any]:
    """The settings of a plan in a TOML file, named as in `Plan`: `datasets = ["cora", "twitch"]`, `seeds = 3`."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # of TOML, or of its letters
        raise InputError(f"'--plan' must be a TOML file (got '{path}': {error})") from error
    for name in settings:
        require_known(str(path), name, [field.name for field in fields(Plan)])
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
