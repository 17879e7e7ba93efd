"""From a detector to a plan: the steps that lead from features, or logits, to scores, p-values and classes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from gnnsafe.calibration import Calibration
from gnnsafe.checks import Task, check_no_probabilities
from gnnsafe.edges import Edges
from gnnsafe.engines.backbones import backbone_steps
from gnnsafe.engines.engine import Block, Column, Engine, Function, Step
from gnnsafe.engines.formulas import mean
from gnnsafe.engines.parts import alone, of_kind, part, part_stages, said
from gnnsafe.engines.stages import Stage, merged, steps_of
from gnnsafe.engines.support import check_method, check_model, reads_degrees, reads_embeddings
from gnnsafe.engines.weighing import evidence, weighed
from gnnsafe.methods import CentredCosine, FeatureDistance, Method, OutOfPlace, TwoScale
from gnnsafe.methods.likeness import cosines, directions
from gnnsafe.methods.silence import levels
from gnnsafe.outputs import Classifier
from gnnsafe.prepared import PreparedGraph
from gnnsafe.scaling import FeatureScaling

__all__ = ["DECIDED", "ScoringPlan", "detector_plan", "logits_plan", "widest"]

DECIDED = {"score": Column(1), "p_value": Column(1, "float64")}
FAR = "far"  # a column: how far off features are, 0, 1 or 2


@dataclass(frozen=True)
class ScoringPlan:
    """The steps from features or logits to decisions."""

    steps: Sequence[Step]
    """The first of them reads the nodes' rows."""
    columns: frozenset[str]
    """Of the last table."""
    out_degrees: bool = False
    """Whether tables have a column `leaving`."""
    rest: Callable[[Any, Engine, Any], Any] | None = None
    """What is done to the table after the steps where that depends on all nodes, by what `silences` gave."""
    silences: Callable[[Engine, Any], TwoScale] | None = None
    """The method as it hears the nodes of that table."""
    silent: str = FAR
    """The column of the first table that says who is not heard."""


def detector_plan(
    model: Any, method: Method, calibration: Calibration, *, task: Task = "multiclass",
    scaling: FeatureScaling | None = None,
) -> ScoringPlan:  # fmt: skip
    """From features to decisions, of a detector whose model is one of our backbones.

    Raises:
        InputError: Model or method cannot run in an engine; the message says what can.
    """
    check_model(model)
    check_method(method, logits_only=False)
    model = copy.deepcopy(model).eval().requires_grad_(False)
    parts = method.parts() if isinstance(method, TwoScale) else (method,)
    further = partial(levels, limits=method.far_off_) if _hears_some(method) else None
    own = [*of_kind(parts, CentredCosine), *of_kind(parts, FeatureDistance)]
    beside = [*map(alone, of_kind(parts, OutOfPlace)), *map(part, own), *([FAR] if further else [])]
    steps = backbone_steps(model, embedding=any(map(reads_embeddings, parts)), kept=tuple(beside))
    steps = _beside(steps, model, parts, task, further)
    described = [_width(steps, alone(number)) for number in of_kind(parts, OutOfPlace)]
    stages = part_stages(parts, task, _width(steps, "embedding"), described)
    first, *rest = steps
    if scaling is not None:
        first = replace(first, function=partial(_after, scaling, first.function))
    plan = _decided_plan(stages, method, parts, calibration, task)
    out_degrees = any(map(reads_degrees, parts))
    silent = next((name for name in first.makes if name in (FAR, _held(FAR))), FAR)
    return replace(plan, steps=[first, *merged([*rest, *plan.steps])], out_degrees=out_degrees, silent=silent)


def logits_plan(method: Method, calibration: Calibration, *, task: Task = "multiclass") -> ScoringPlan:
    """From logits that any model gave to decisions.

    Raises:
        InputError: The method reads more than logits.
    """
    check_method(method, logits_only=True)
    plan = _decided_plan(part_stages((method,), task, 0, ()), method, (method,), calibration, task)
    first, *rest = merged(plan.steps)
    function = partial(_unnormalised, first.function) if task == "multiclass" else first.function
    return replace(plan, steps=[replace(first, function=function), *rest])


def widest(steps: Sequence[Step]) -> int:
    """How many bytes of a node are summed over neighbours at once, at most."""
    values = [step.makes["value"] for step in steps if "value" in step.makes]
    return max((column.width * (8 if column.dtype == "float64" else 4) for column in values), default=8)


def _decided_plan(
    stages: list[Stage], method: Method, parts: Sequence[Method], calibration: Calibration, task: Task
) -> ScoringPlan:
    beside = said(parts, task)
    if isinstance(method, TwoScale):
        far = [FAR] if method.distance is not None else []
        steps = steps_of([*stages, evidence(method)], ["value", *beside, *far])
        rest = partial(weighed, calibration, tuple(beside))
        silences = partial(_hearing, method)
        return ScoringPlan(steps, frozenset({*beside, *DECIDED}), rest=rest, silences=silences)
    reads = ("part0", *(("predicted",) if calibration.classes is not None else ()))
    steps = steps_of([*stages, Stage(partial(_decided, calibration), DECIDED, reads)], [*DECIDED, *beside])
    return ScoringPlan(steps, frozenset({*beside, *DECIDED}))


def _width(steps: Sequence[Step], name: str) -> int:
    """That of a column, or 0."""
    return next((step.makes[name].width for step in steps if name in step.makes), 0)


def _beside(
    steps: Sequence[Step], model: Any, parts: Sequence[Method], task: Task, further: Callable[[Tensor], Tensor] | None
) -> list[Step]:
    """The model's steps, with what methods read of features: how far off, without edges, and their directions."""
    first, *rest = steps
    if distances := of_kind(parts, FeatureDistance):
        makes = {**{part(number): Column() for number in distances}, **({FAR: Column(1, "int64")} if further else {})}
        first = Step(partial(_both, first.function, partial(_distances, distances, further)), {**first.makes, **makes})
    if places := of_kind(parts, OutOfPlace):
        ask = partial(_alone, Classifier(model, task=task), places)
        found = ask({"value": torch.zeros(1, model.in_channels)})
        makes = {**first.makes, **{name: Column(rows.shape[1]) for name, rows in found.items()}}
        first = Step(partial(_both, first.function, ask), makes)
    if not (centred := of_kind(parts, CentredCosine)):
        return [first, *rest]
    held = {_held(name): column for name, column in first.makes.items()}
    width = sum(len(method.centre_) for method in centred.values())
    makes = {part(number): Column() for number in centred}
    return [
        Step(partial(_directed, centred, first.function), {"value": Column(width), **held}),
        Step(partial(_likened, centred, [*first.makes]), {**makes, **first.makes}, aggregates=True),
        *rest,
    ]


def _alone(classifier: Classifier, places: dict[int, OutOfPlace], block: Block) -> dict[str, Tensor]:
    """What each node would be without edges: features → the rows that the methods compare."""
    none = torch.empty(2, 0, dtype=torch.int64)
    graph = PreparedGraph(SimpleNamespace(x=block["value"], edge_index=none), Edges(none, len(block["value"])))
    outputs = classifier(graph).with_embeddings()
    return {alone(number): method.rows_of(outputs) for number, method in places.items()}


def _distances(
    methods: dict[int, FeatureDistance], further: Callable[[Tensor], Tensor] | None, block: Block
) -> dict[str, Tensor]:
    sums = {number: method.sums(block["value"]) for number, method in methods.items()}
    far = {FAR: further(next(iter(sums.values())))[:, None]} if further else {}
    return {**{part(number): each[:, :1] for number, each in sums.items()}, **far}


def _hears_some(method: Method) -> bool:
    return isinstance(method, TwoScale) and method.distance is not None


def _hearing(method: TwoScale, engine: Engine, table: Any) -> TwoScale:
    if method.distance is None:
        return method.with_far(torch.tensor(0.0), torch.tensor(0.0), 1)
    far, absurd, nodes = engine.total(table, _far_counts)
    return method.with_far(far / nodes, absurd / nodes, int(nodes))


def _far_counts(block: Block) -> dict[str, Tensor]:
    found = block[FAR][:, 0]
    return {"total": torch.stack([(found > 0).sum(), (found > 1).sum(), torch.tensor(len(found))])}


def _both(one: Function, two: Function, block: Block) -> dict[str, Tensor]:
    return {**one(block), **two(block)}


def _directed(centred: dict[int, CentredCosine], function: Function, block: Block) -> dict[str, Tensor]:
    rows = torch.cat([directions(block["value"], method.centre_) for method in centred.values()], dim=1)
    return {"value": rows, **{_held(name): made for name, made in function(block).items()}}


def _likened(centred: dict[int, CentredCosine], names: Sequence[str], block: Block) -> dict[str, Tensor]:
    pairs = zip(block["value"].chunk(len(centred), dim=1), mean(block, "decay").chunk(len(centred), dim=1), strict=True)
    scores = {part(number): -cosines(*pair)[:, None] for number, pair in zip(centred, pairs, strict=True)}
    return {**scores, **{name: block[_held(name)] for name in names}}


def _held(name: str) -> str:
    """The name of a column while another step goes before the one that reads it."""
    return f"held_{name}"


def _decided(calibration: Calibration, block: Block) -> dict[str, Tensor]:
    scores = block["part0"][:, 0]
    classes = None if calibration.classes is None else block["predicted"][:, 0]
    return {"score": scores[:, None], "p_value": calibration.p_values(scores, classes)[:, None]}


def _unnormalised(function: Function, block: Block) -> dict[str, Tensor]:
    """What is made of logits, which are no probabilities."""
    check_no_probabilities(block["value"])
    return function(block)


def _after(scaling: FeatureScaling, function: Function, block: Block) -> dict[str, Tensor]:
    return function({**block, "value": scaling(block["value"])})
