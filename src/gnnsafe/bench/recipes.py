"""Recipes: how to train and how to score, under the name that tables give it; and the table of them all."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from inspect import getfile, signature
from pathlib import Path
from typing import Literal

import xxhash

from gnnsafe.bench import paper
from gnnsafe.datasets import CONTROLS, DATASETS
from gnnsafe.edges import Isolated
from gnnsafe.errors import InputError, RegistrationWarning, require, require_known
from gnnsafe.methods import (
    METHODS,
    MSP,
    Agreement,
    DeepEnsemble,
    DegreeBalance,
    DiffusedKNN,
    DirichletEnergy,
    Energy,
    GNNSafe,
    InDegree,
    MaxLogit,
    MCDropout,
    Method,
    OutDegree,
    Propagated,
)
from gnnsafe.models import MODELS
from gnnsafe.training import (
    OBJECTIVES,
    BoundedEnergy,
    CrossEntropy,
    DirichletMargin,
    EnergyMargin,
    MemberCrossEntropy,
    Objective,
    OutlierExposure,
    SyntheticExposure,
)

__all__ = [
    "Protocol",
    "Recipe",
    "SelectedBy",
    "alone_and_propagated",
    "backbones",
    "code_of",
    "demo_recipes",
    "margins_text",
    "recipes",
    "typed",
]

Protocol = Literal["paper", "rigorous"]
SelectedBy = Literal["validation", "test"]
"""What chooses epoch and settings: ID validation and held-out exposure nodes or, for the audit, test data."""

PUBLISHED = "as in the published runs"
UNCHOSEN = "common to all shifts, chosen by no figure"


@dataclass(frozen=True)
class Recipe:
    """An objective, a method and a model: GNNSafe++ is the energy margin, scored by propagated energy."""

    name: str
    objective: Objective
    method: Method
    model: str = "gcn"
    code: str = ""
    """A hash of the files that define its method, objective and model, as far as these are not gnnsafe's own."""
    lr: float = paper.LEARNING_RATE
    chosen: dict[str, str] = field(default_factory=lambda: {"lr": f"{paper.LEARNING_RATE}, {PUBLISHED}"})
    """How each hyper-parameter was chosen."""


def backbones() -> tuple[str, ...]:
    """The models that any method reads: all in MODELS but those that a method has for itself.

    A user's method has none of ours for itself.
    """
    kinds = [(method.model, method in METHODS.own) for method in METHODS.values() if method.model is not None]
    reserved = {name for name, ours in kinds if ours == (MODELS.get(name) in MODELS.own)}
    return tuple(name for name in MODELS if name not in reserved)


def recipes(dataset: str, shift: str, *, protocol: Protocol = "paper", backbone: str = "gcn") -> list[Recipe]:
    """Every method in METHODS, alone and propagated (K = 2), the methods that are an objective, and some larger K.

    Protocol `paper`: margins as in the published runs, and GNNSafe's scores of isolated nodes decay; with our default,
    which keeps them, it stands beside. (Scores that are not negative would decay towards ID.) `rigorous`: one pair of
    margins for all shifts, and they are kept. A method with a model of its own is left out beside other backbones than
    the GCN; objectives that need exposure nodes are where a shift leaves none for them.
    """
    isolated: Isolated = "decay" if protocol == "paper" else "keep"
    gnnsafe = GNNSafe(isolated=isolated)
    tuned, tuned_propagated = paper.margins(dataset, shift) if protocol == "paper" else (paper.COMMON, paper.COMMON)
    table = [
        Recipe("GNNSafe", CrossEntropy(), gnnsafe, backbone),
        *([Recipe("GNNSafe, keep", CrossEntropy(), GNNSafe(), backbone)] if protocol == "paper" else []),
        Recipe("Energy FT", EnergyMargin(*tuned, steps=0), Energy(), backbone),
        Recipe("GNNSafe++", EnergyMargin(*tuned_propagated, isolated=isolated), gnnsafe, backbone),
        Recipe("NODESafe", BoundedEnergy(), gnnsafe, backbone),
        Recipe("OE", OutlierExposure(), MaxLogit(), backbone),
        Recipe("Energy, synthetic", SyntheticExposure(), Energy(), backbone),
        Recipe("GNNSafe, synthetic", SyntheticExposure(), gnnsafe, backbone),
        Recipe("DirichletEnergy FT", DirichletMargin(), DirichletEnergy(), backbone),
    ]
    for key, method in METHODS.items():
        if key != "gnnsafe":
            table += _registered(key, method, backbone)
    further = {
        "Energy K=16": Propagated(Energy(), 16),
        "MSP K=8": Propagated(MSP(), 8),
        "Agreement K=16": Propagated(Agreement(), 16),
        "DiffusedKNN s=2 K=0": DiffusedKNN(diffusion=2, steps=0),
        "Energy, alike K=2": Propagated(Energy(), weighting="similarity"),
        "MCDropout, information": MCDropout("mutual-information"),
        **{f"{kind.__name__}, low": kind("low") for kind in (InDegree, OutDegree, DegreeBalance)},
    }
    table += [Recipe(name, CrossEntropy(), method, backbone) for name, method in further.items()]
    if backbone == "gcn":  # whose ensemble it is
        members = DeepEnsemble("mutual-information")
        table.append(Recipe("DeepEnsemble, information", MemberCrossEntropy(), members, "ensemble"))
    names = Counter(typed(recipe.name) for recipe in table)
    twice = next((recipe.name for recipe in table if names[typed(recipe.name)] > 1), None)
    require(twice is None, "name", "be one that no recipe has", f"'{twice}' twice", "register the method under another")
    published = protocol == "paper" and paper.in_tables(dataset, shift.removeprefix("planted-"))
    how = PUBLISHED if published else UNCHOSEN
    table = [_explained(recipe, how) for recipe in table]
    exposed = shift not in CONTROLS and (shift != "label" or DATASETS[dataset].classes > 3)
    table = [recipe for recipe in table if exposed or not recipe.objective.needs_exposure]
    return [replace(recipe, code=recipe.code or code_of(MODELS[recipe.model])) for recipe in table]


def margins_text(objective: EnergyMargin) -> str:
    """Its margins and weight, for a reader."""
    return f"t_in {objective.t_in:g}, t_out {objective.t_out:g}, λ {objective.weight:g}"


def _explained(recipe: Recipe, how: str) -> Recipe:
    if not isinstance(recipe.objective, EnergyMargin) or "margins" in recipe.chosen:
        return recipe
    return replace(recipe, chosen={**recipe.chosen, "margins": f"{margins_text(recipe.objective)}, {how}"})


def _registered(name: str, method: type[Method], backbone: str) -> list[Recipe]:
    """The same for a method in METHODS; one whose objective or model is nowhere is left out, and the others run."""
    try:
        return alone_and_propagated(method, backbone)
    except InputError as error:
        warnings.warn(f"the method '{name}' is left out ({error})", RegistrationWarning, stacklevel=4)
        return []


def alone_and_propagated(method: type[Method], backbone: str) -> list[Recipe]:
    """A method as it is, and with K = 2 unless it has steps of its own; trained as the method says."""
    if method.model is not None and backbone != "gcn":
        return []
    require_known(f"{method.__name__}.objective", method.objective, OBJECTIVES)
    if method.model is not None:
        require_known(f"{method.__name__}.model", method.model, MODELS)
    name, model, kind = _table_name(method), method.model or backbone, OBJECTIVES[method.objective]
    trained = EnergyMargin(*paper.COMMON) if kind is EnergyMargin else kind()
    alone = _explained(Recipe(name, trained, method(), model, code_of(method, kind, MODELS[model])), UNCHOSEN)
    if method is Energy or "steps" in signature(method).parameters:  # GNNSafe is Energy's; these have it built in
        return [alone]
    return [alone, replace(alone, name=f"{name} K=2", method=Propagated(method()))]


def _table_name(method: type[Method]) -> str:
    """What tables call a method: by its class, unless it is registered under another word."""
    key = METHODS.name_of(method) or method.__name__
    return method.__name__ if typed(key) == typed(method.__name__) else key


def typed(name: str) -> str:
    """A name as people may type it: `max-logit` is MaxLogit, `energy-ft` is Energy FT."""
    return re.sub(r"[^a-z0-9+]", "", name.lower())


def code_of(*kinds: type) -> str:
    """A hash of the files that define those of the classes that are not gnnsafe's own; nothing where all are."""
    files = {_text(kind): None for kind in kinds if kind not in METHODS.own | OBJECTIVES.own | MODELS.own}
    return xxhash.xxh3_64_hexdigest(b"".join(files)) if files else ""


def _text(kind: type) -> bytes:
    try:
        return Path(getfile(kind)).read_bytes()
    except (TypeError, OSError):  # of a notebook or an archive
        return repr(kind).encode()


def demo_recipes(shift: str) -> list[Recipe]:
    """The paper's few and our default on Cora; kept scores only where new edges leave nodes isolated."""
    kept = ["GNNSafe, keep"] if shift == "structure" else []
    table = {recipe.name: recipe for recipe in recipes("cora", shift)}
    return [table[name] for name in ("MSP", "Energy", "GNNSafe", *kept, "GNNSafe++", "TwoScale")]
