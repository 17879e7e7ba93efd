"""From a detector to a plan: the steps that lead from features, or logits, to scores, p-values and classes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from gnnsafe.calibration import Calibration
from gnnsafe.checks import Task
from gnnsafe.edges import Edges
from gnnsafe.engines.backbones import backbone_steps
from gnnsafe.engines.engine import COUNTS, Block, Column, Function, Step
from gnnsafe.engines.formulas import diffused
from gnnsafe.engines.support import check_method, check_model, innermost, reads_embeddings
from gnnsafe.methods import DiffusedKNN, Energy, GNNSafe, Method, Propagated
from gnnsafe.modes import without_modes
from gnnsafe.outputs import Outputs
from gnnsafe.prepared import PreparedGraph
from gnnsafe.propagation import Propagation
from gnnsafe.scaling import FeatureScaling
from gnnsafe.scores import energy, max_softmax, saturated

__all__ = ["detector_steps", "logits_steps", "run", "widest"]

SCORE = {"value": Column(1, "float64")}
SAID = {"predicted": Column(1, "int64"), "probability": Column(1)}
DECIDED = {"score": Column(1), "p_value": Column(1, "float64")}


def detector_steps(
    model: Any, method: Method, calibration: Calibration, *, task: Task = "multiclass",
    scaling: FeatureScaling | None = None,
) -> list[Step]:  # fmt: skip
    """The steps from features to decisions, of a detector whose model is one of our backbones.

    Raises:
        InputError: Model or method cannot run in an engine; the message says what can.
    """
    check_model(model)
    check_method(method, logits_only=False)
    model = copy.deepcopy(model).eval().requires_grad_(False)
    embedding = reads_embeddings(method)
    steps = backbone_steps(model, embedding=embedding)
    first = steps[0] if scaling is None else replace(steps[0], function=partial(_after, scaling, steps[0].function))
    rest = [*steps[1:], *_method_steps(method, task, embedding, _width(steps)), *_decisions(method, calibration, task)]
    return [first, *_merged(rest)]


def logits_steps(method: Method, calibration: Calibration, *, task: Task = "multiclass") -> list[Step]:
    """The steps from logits that anybody's model gave to decisions.

    Raises:
        InputError: The method reads more than logits.
    """
    check_method(method, logits_only=True)
    base, *rest = [*_method_steps(method, task, False, 0), *_decisions(method, calibration, task)]
    return [base, *_merged(rest)]


def widest(steps: Sequence[Step]) -> int:
    """How many bytes of a node are summed over neighbours at once, at most."""
    values = [step.makes["value"] for step in steps if "value" in step.makes]
    return max(column.width * (8 if column.dtype == "float64" else 4) for column in values)


def _width(steps: Sequence[Step]) -> int:
    """Of the embeddings, or 0."""
    return next((step.makes["embedding"].width for step in steps if "embedding" in step.makes), 0)


def _method_steps(method: Method, task: Task, embedding: bool, width: int) -> list[Step]:
    """From logits (and embeddings) to propagated scores, with the predicted class beside them."""
    said = SAID if task == "multiclass" else {}
    inner = innermost(method)
    steps: list[Step] = []
    if isinstance(inner, DiffusedKNN):
        inner = _undiffused(inner)
        steps.append(Step(partial(_classified, task), {**said, "value": Column(width)}))
        for _ in range(innermost(method).diffusion):
            hears = partial(_diffused, 0.5, "keep")
            steps.append(Step(hears, {"value": Column(width)}, tuple(said), hears=True))
        steps.append(Step(partial(_embedding_scores, inner, task), SCORE, tuple(said)))
    else:
        extra = {"energy": Column(1)} if _energetic(inner, task) else {}
        steps.append(Step(partial(_base_scores, inner, task, embedding), {**SCORE, **said, **extra}))
    kept = (*said, *(("energy",) if _energetic(inner, task) else ()))
    for how in _propagations(method):
        function = partial(_diffused, how.alpha, how.isolated)
        steps += [Step(function, SCORE, kept, hears=True)] * how.steps
    return steps


def _decisions(method: Method, calibration: Calibration, task: Task) -> list[Step]:
    said = tuple(SAID) if task == "multiclass" else ()
    extra = ("energy",) if _energetic(innermost(method), task) else ()
    return [Step(partial(_decided, calibration), DECIDED, (*said, *extra))]


def _propagations(method: Method) -> list[Propagation]:
    """From the innermost method's outwards."""
    inner = _propagations(method.method) if isinstance(method, Propagated) else []
    return [*inner, method.propagation]


def _undiffused(method: DiffusedKNN) -> DiffusedKNN:
    bare = copy.copy(method)
    bare.diffusion = 0
    return bare


def _energetic(method: Method, task: Task) -> bool:
    """Whether it has to be known of all nodes together that logits are no log-probabilities."""
    return isinstance(method, Energy | GNNSafe) and task == "multiclass"


def _outputs(logits: Tensor, task: Task, embedding: Tensor | None = None) -> Outputs:
    """Rows as outputs of a graph without edges: what reads a node by itself reads them as it would in any graph."""
    none = torch.empty(2, 0, dtype=torch.int64)
    graph = PreparedGraph(SimpleNamespace(x=logits[:, :0], edge_index=none), Edges(none, len(logits), reused=False))
    return Outputs(logits, graph, task, embedded=embedding)


def _classes(logits: Tensor, task: Task) -> dict[str, Tensor]:
    if task != "multiclass":
        return {}
    return {"predicted": logits.argmax(dim=1, keepdim=True), "probability": -max_softmax(logits)[:, None]}


def _base_scores(method: Method, task: Task, embedding: bool, block: Block) -> dict[str, Tensor]:
    logits = block["value"]
    result = _classes(logits, task)
    if _energetic(method, task):
        assert isinstance(method, Energy | GNNSafe)
        scores = saturated(energy(logits, temperature=method.temperature))
        result["energy"] = (scores if method.temperature == 1 else energy(logits))[:, None]
    else:
        scores = method.base_scores(_outputs(logits, task, block["embedding"] if embedding else None))
    return {**result, "value": scores.double()[:, None]}


def _classified(task: Task, block: Block) -> dict[str, Tensor]:
    return {**_classes(block["value"], task), "value": block["embedding"]}


def _embedding_scores(method: Method, task: Task, block: Block) -> dict[str, Tensor]:
    scores = method.base_scores(_outputs(block["value"][:, :0], task, block["value"]))
    return {"value": scores.double()[:, None]}


def _diffused(alpha: float, isolated: Any, block: Block) -> dict[str, Tensor]:
    return {"value": diffused(block, alpha, isolated)}


def _decided(calibration: Calibration, block: Block) -> dict[str, Tensor]:
    scores = saturated(block["value"])[:, 0]
    classes = None if calibration.classes is None else block["predicted"][:, 0]
    return {"score": scores[:, None], "p_value": calibration.p_values(scores, classes)[:, None]}


def _after(scaling: FeatureScaling, function: Function, block: Block) -> dict[str, Tensor]:
    return function({**block, "value": scaling(block["value"])})


def _merged(steps: Sequence[Step]) -> list[Step]:
    """Steps that hear nobody, done together with the one before them: nothing is stored in between."""
    result: list[Step] = []
    for step in steps:
        if result and not step.hears:
            result[-1] = _joined(result[-1], step)
        else:
            result.append(step)
    return result


def _joined(one: Step, two: Step) -> Step:
    through = [name for name in two.keeps if name in one.makes]
    makes = {**{name: one.makes[name] for name in through}, **two.makes}
    keeps = tuple(name for name in two.keeps if name not in one.makes)
    return Step(partial(_one_after_other, one.function, two.function, tuple(through)), makes, keeps, one.hears)


def _one_after_other(one: Function, two: Function, through: tuple[str, ...], block: Block) -> dict[str, Tensor]:
    between = one(block)
    passed = {name: value for name, value in block.items() if name in COUNTS or name not in ("value", "heard")}
    return {**{name: between[name] for name in through}, **two({**passed, **between})}


def run(function: Function, block: Block) -> dict[str, Tensor]:
    """The function of some rows, without gradients."""
    with without_modes(), torch.no_grad():
        return function(block)
