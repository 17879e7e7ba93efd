"""Scores of several methods of one model as steps: of each node by itself, then aggregated over neighbours.

Steps are shared: embeddings are diffused once for all methods that diffuse them, and scores that are propagated alike
go side by side. The columns `part0`, `part1`, … are the methods' scores.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from gnnsafe.checks import Task
from gnnsafe.edges import Edges
from gnnsafe.engines.engine import Block, Column
from gnnsafe.engines.formulas import diffused, mean
from gnnsafe.engines.stages import Stage
from gnnsafe.engines.support import innermost, reads_embeddings
from gnnsafe.methods import CentredCosine, DiffusedKNN, Energy, FeatureDistance, GNNSafe, Method, OutOfPlace, Propagated
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph
from gnnsafe.propagation import Propagation
from gnnsafe.scores import energy, max_softmax, saturated

__all__ = ["alone", "of_kind", "part", "part_stages", "rows_as_outputs", "said"]


def part(number: int) -> str:
    """The column of a method's scores."""
    return f"part{number}"


def alone(number: int) -> str:
    """The column of what a node would be without edges, as that method describes it."""
    return f"alone{number}"


def said(methods: Sequence[Method], task: Task) -> dict[str, Column]:
    """What is said of every node beside its score: the class, and energies where these are to be checked."""
    classes = {"predicted": Column(1, "int64"), "probability": Column(1)} if task == "multiclass" else {}
    return {**classes, **({"energy": Column(1)} if any(_energetic(innermost(one), task) for one in methods) else {})}


def of_kind(methods: Sequence[Method], kind: type[Method]) -> dict[int, Any]:
    """The methods within of that kind, by number."""
    inner = map(innermost, methods)
    return {number: method for number, method in enumerate(inner) if isinstance(method, kind)}


def part_stages(methods: Sequence[Method], task: Task, width: int, described: Sequence[int]) -> list[Stage]:
    """From logits, `value`, to the scores of the methods, with what is `said` of every node.

    Args:
        methods: Such as run in an engine.
        task: What logits mean.
        width: Of the column `embedding`.
        described: Widths of the columns `alone…`, in the order of the methods that have one.
    """
    stages = [_by_itself(methods, task), *_places(methods, task, described), *_diffusions(methods, task, width)]
    for how in dict.fromkeys(map(_propagations, methods)):
        alike = [part(number) for number, method in enumerate(methods) if _propagations(method) == how]
        stages += _propagated(how, alike)
    return stages


def _by_itself(methods: Sequence[Method], task: Task) -> Stage:
    others = (OutOfPlace, DiffusedKNN, CentredCosine, FeatureDistance)  # whose scores are there, or come later
    own = {number: inner for number, inner in enumerate(map(innermost, methods)) if not isinstance(inner, others)}
    embedding = ("embedding",) if any(map(reads_embeddings, own.values())) else ()
    makes = {**said(methods, task), **{part(number): Column() for number in own}}
    return Stage(partial(_own_scores, own, task, "energy" in makes), makes, ("value", *embedding))


def _places(methods: Sequence[Method], task: Task, described: Sequence[int]) -> list[Stage]:
    """What a node's neighbours are like, beside what it would be without them."""
    if not (places := of_kind(methods, OutOfPlace)):
        return []
    embedding = ("embedding",) if any(map(reads_embeddings, places.values())) else ()
    makes = {part(number): Column() for number in places}
    return [
        Stage(partial(_described, places, task), {"value": Column(sum(described))}, ("value", *embedding)),
        Stage(partial(_placed, [*places], [*described]), makes, ("value", *map(alone, places)), aggregates=True),
    ]


def _diffusions(methods: Sequence[Method], task: Task, width: int) -> list[Stage]:
    """h ← ½ h + ½ D⁻¹A h, as often as the method that needs most; the others read it on the way."""
    spread, value = of_kind(methods, DiffusedKNN), {"value": Column(width)}
    stages, done = [Stage(_embedded, value, ("embedding",))] if spread else [], 0
    for number, method in sorted(spread.items(), key=lambda one: one[1].diffusion):
        once = Stage(partial(_diffused, Propagation()), value, ("value",), aggregates=True)
        stages += [once] * (method.diffusion - done)
        done, bare = method.diffusion, copy.copy(method)
        bare.diffusion = 0  # they come diffused
        stages.append(Stage(partial(_embedding_scores, bare, task, number), {part(number): Column()}, ("value",)))
    return stages


def _propagated(how: tuple[Propagation, ...], names: list[str]) -> list[Stage]:
    if not how:
        return []
    value = {"value": Column(len(names), "float64")}
    every = [one for one in how for _ in range(one.steps)]
    steps = [Stage(partial(_diffused, one), value, ("value",), aggregates=True) for one in every]
    apart = Stage(partial(_apart, names), {name: Column() for name in names}, ("value",))
    return [Stage(partial(_together, names), value, names), *steps, apart]


def _propagations(method: Method) -> tuple[Propagation, ...]:
    """From the innermost method's outwards, but those without a step."""
    inner = _propagations(method.method) if isinstance(method, Propagated) else ()
    return (*inner, method.propagation) if method.propagation.steps else inner


def _energetic(method: Method, task: Task) -> bool:
    """Whether it has to be known of all nodes together that logits are no log-probabilities."""
    return isinstance(method, Energy | GNNSafe) and task == "multiclass"


def rows_as_outputs(logits: Tensor, task: Task, block: Block) -> Outputs:
    """Rows as outputs of a graph without edges: what reads a node by itself reads them as it would in any graph."""
    none = torch.empty(2, 0, dtype=torch.int64)
    edges = Edges(none, len(logits), reused=False)
    if "leaving" in block:
        leaving, coming = ((block[name] + block["loops"])[:, 0] for name in ("leaving", "coming"))
        edges.part_of(leaving.double, coming.double)
    graph = PreparedGraph(SimpleNamespace(x=logits[:, :0], edge_index=none), edges)
    return Outputs(logits, graph, task, embedded=block.get("embedding"))


def _own_scores(own: dict[int, Method], task: Task, energies: bool, block: Block) -> dict[str, Tensor]:
    logits = block["value"]
    outputs, result = rows_as_outputs(logits, task, block), dict[str, Tensor]()
    if task == "multiclass":
        result = {"predicted": logits.argmax(dim=1, keepdim=True), "probability": -max_softmax(logits)[:, None]}
    if energies:
        result["energy"] = energy(logits)[:, None]
    return result | {part(number): _scores(method, outputs)[:, None] for number, method in own.items()}


def _scores(method: Method, outputs: Outputs) -> Tensor:
    if isinstance(method, Energy | GNNSafe) and _energetic(method, outputs.task):  # checked of all nodes together
        return saturated(energy(outputs.logits, temperature=method.temperature))
    return method.base_scores(outputs)


def _described(places: dict[int, OutOfPlace], task: Task, block: Block) -> dict[str, Tensor]:
    outputs = rows_as_outputs(block["value"], task, block)
    return {"value": torch.cat([method.rows_of(outputs) for method in places.values()], dim=1)}


def _placed(places: list[int], widths: list[int], block: Block) -> dict[str, Tensor]:
    means = zip(places, torch.split(mean(block, "keep"), widths, dim=1), strict=True)
    return {part(number): OutOfPlace.unlike(block[alone(number)], rows)[:, None] for number, rows in means}


def _embedded(block: Block) -> dict[str, Tensor]:
    return {"value": block["embedding"]}


def _embedding_scores(method: Method, task: Task, number: int, block: Block) -> dict[str, Tensor]:
    outputs = rows_as_outputs(block["value"][:, :0], task, {"embedding": block["value"]})
    return {part(number): method.base_scores(outputs)[:, None]}


def _together(names: Sequence[str], block: Block) -> dict[str, Tensor]:
    return {"value": torch.cat([block[name] for name in names], dim=1).double()}


def _diffused(how: Propagation, block: Block) -> dict[str, Tensor]:
    return {"value": diffused(block, how.alpha, how.isolated)}


def _apart(names: Sequence[str], block: Block) -> dict[str, Tensor]:
    return dict(zip(names, torch.split(saturated(block["value"]), 1, dim=1), strict=True))
