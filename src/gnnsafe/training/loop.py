"""Full-batch training with early selection: one loop for every model and objective."""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gnnsafe.checks import Task, check_binary
from gnnsafe.edges import Edges
from gnnsafe.errors import TrainingError, TrainingWarning, is_number, require, require_seed, require_whole
from gnnsafe.graph import Graph, node_labels, node_mask
from gnnsafe.models.passes import Passes, choose_passes
from gnnsafe.outputs import Classifier, Outputs, embeddings_of
from gnnsafe.prepared import PreparedGraph, admit, prepare
from gnnsafe.randomness import OwnRandomness
from gnnsafe.regions import excerpt
from gnnsafe.training.objectives import Objective, exposure_missing

__all__ = ["History", "train"]

log = logging.getLogger(__name__)


@dataclass
class History:
    """What training saw: each epoch's objective before its step, and the ID validation cross-entropy after it.

    Args:
        loss: The objective in each epoch.
        val_loss: The validation cross-entropy after each epoch.
        best_epoch: The epoch (counted from 0) with the lowest validation loss, whose weights the model has now.
    """

    loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    best_epoch: int = -1
    """The epoch (counted from 0) with the lowest validation cross-entropy, whose weights the model has now."""


def train(
    model: nn.Module,
    data: Graph,
    *,
    objective: Objective,
    exposure: Graph | None = None,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 0.01,
    seed: int | None = 0,
    task: Task = "multiclass",
    each_epoch: Callable[[History], object] | None = None,
) -> History:
    """Minimise `objective` by Adam, full batch, and restore the epoch with the lowest ID validation cross-entropy.

    The model is left in evaluation mode; interrupted, it has the best weights so far, and those it came with where
    there are none.

        model = gnnsafe.models.GCN(data.num_features, 64, num_classes)
        gnnsafe.train(model, data, objective=gnnsafe.CrossEntropy())

    Trainings in several threads, each of a model of its own, end with the weights that each ends with alone; they take
    turns in their forward passes. A model of gnnsafe.models may be constructed in its thread. Whatever else draws
    torch's global random numbers, such as the constructor of a model of your own, is to be done before the threads
    start.

    Args:
        model: Any module called `(x, edge_index)` that returns logits.
        data: The graph, with `y`, `train_mask` and `val_mask`.
        objective: What is minimised.
        exposure: A graph of known OOD nodes, those in its `mask`; read only by objectives that need it.
        epochs: How many passes over the whole graph.
        lr: Adam's learning rate.
        weight_decay: Adam's weight decay.
        seed: Weights are reset from it, so the same seed gives the same weights, by the `reset_parameters` of the
            model or of its submodules (a parameter of a module that has none keeps its value); None goes on from the
            weights that the model has.
        task: "multilabel" where `y` has a 0 or 1 per node and label, and the logits are those of sigmoids.
        each_epoch: Called after every epoch, to show or to keep what training has seen so far.

    Returns:
        The losses of every epoch, and which epoch was the best.

    Raises:
        InputError: An argument, the graph or the exposure breaks a rule.
        TrainingError: The loss became NaN or infinite.

    >>> from types import SimpleNamespace
    >>> from gnnsafe import CrossEntropy
    >>> from gnnsafe.models import GCN
    >>> path = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> data = SimpleNamespace(
    ...     x=torch.eye(4), edge_index=path, y=torch.tensor([0, 0, 1, 1]),
    ...     train_mask=torch.tensor([True, False, True, False]), val_mask=torch.tensor([False, True, False, True]),
    ... )
    >>> history = train(GCN(4, 8, 2), data, objective=CrossEntropy(), epochs=5)
    >>> len(history.loss), len(history.val_loss)
    (5, 5)
    """
    require_whole("epochs", epochs, 1)
    require(is_number(lr) and 0 < lr < math.inf, "lr", "be > 0", lr)
    require(is_number(weight_decay) and 0 <= weight_decay < math.inf, "weight_decay", "be >= 0", weight_decay)
    if seed is not None:
        require_seed(seed)
    require(each_epoch is None or callable(each_epoch), "each_epoch", "be called with a History", repr(each_epoch))
    require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model).__name__)
    _check_objective(objective)
    graph = prepare(data)
    with OwnRandomness(None, graph.device):  # a model may drop units in evaluation mode, too
        _check_data(model, graph, task)
    # Exposure that the objective does not read never meets the model: its statistics would leak into BatchNorm.
    outside = _check_exposure(exposure, graph, objective) if objective.needs_exposure else None
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    require(bool(parameters), "model", "have parameters to train", "none")
    optimizer = torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay, fused=True)
    before = _weights(model)

    def teach(lesson: Objective) -> Tensor:
        teacher = copy.deepcopy(model)
        settings: dict[str, Any] = {"epochs": epochs, "lr": lr, "weight_decay": weight_decay, "seed": seed}
        train(teacher, graph, objective=lesson, exposure=outside, task=task, **settings)
        with OwnRandomness(None, graph.device):
            return Outputs.of(teacher, graph, task=task).logits

    random = OwnRandomness(seed, graph.device)
    with torch.inference_mode(False):  # which turns gradients on, within no_grad, too
        objective = objective.bound(graph, teach, task)
        if seed is not None:
            with random:
                _reset(model)
        return _minimise(model, graph, objective, outside, epochs, optimizer, before, task, each_epoch, random)


def _minimise(
    model: nn.Module,
    data: PreparedGraph,
    objective: Objective,
    exposure: PreparedGraph | None,
    epochs: int,
    optimizer: torch.optim.Optimizer,
    best: dict[str, Any],
    task: Task,
    each_epoch: Callable[[History], object] | None,
    random: OwnRandomness,
) -> History:
    trainable = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    val = node_mask(data, "val_mask").nonzero().squeeze(1)
    val_labels = node_labels(data, task)[val]
    rows, read = _read_by_loss(data, objective, "train_mask")
    inside, outside = choose_passes(model, data, rows, val), None
    if exposure is not None:
        exposure_rows, exposure_read = _read_by_loss(exposure, objective, "mask")
        outside = choose_passes(model, exposure, exposure_rows, val[:0], beside=inside)
    history = History()

    def seen(one: Passes, graph: PreparedGraph) -> Outputs:
        if not objective.reads_embeddings:
            return Outputs(one.training(), graph, task)
        with embeddings_of(model) as embeddings:
            logits = one.training()
        return Outputs(logits, graph, task, Classifier(model, task=task), embeddings[-1])

    try:
        model.eval()  # as a caller between epochs expects it; passes that need training mode set it
        objective.begin_epoch(model, 0)
        for epoch in range(epochs):
            with random:
                outputs = seen(inside, read)
                exposed = seen(outside, exposure_read) if outside is not None else None
                loss = objective.loss(outputs, exposed, epoch=epoch)
            model.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            objective.begin_epoch(model, epoch + 1)  # before the next first layer: what is held still has no gradient
            with random:
                val_loss = objective.validation(inside.validation(), val_labels, task)
            _record(history, epoch, loss.item(), val_loss.item())
            if history.best_epoch == epoch:
                best = _weights(model)
            if each_epoch is not None:
                each_epoch(history)
    finally:
        for parameter, trains in trainable:
            parameter.requires_grad_(trains)
        model.load_state_dict(best)
        model.zero_grad()
        model.eval()
    done = (type(model).__name__, objective, len(history.loss), history.best_epoch + 1)
    log.info("%s trained by %r: %d epochs, best after %d", *done)
    return history


def _read_by_loss(graph: PreparedGraph, objective: Objective, mask: str) -> tuple[Tensor | None, PreparedGraph]:
    """The rows of logits that the loss reads of a graph (None: all), and the graph as far as it reads it."""
    hops = objective.reach()
    if hops is None:
        return None, graph
    rows, part = excerpt(graph, node_mask(graph, mask), hops)
    if len(rows) == graph.num_nodes:
        return rows, graph
    return rows, PreparedGraph(part, Edges(part.edge_index, len(rows)))


def _record(history: History, epoch: int, loss: float, val_loss: float) -> None:
    if not (math.isfinite(loss) and math.isfinite(val_loss)):
        raise TrainingError(f"training diverged at epoch {epoch} (loss {loss}, validation {val_loss}); lower 'lr'")
    if not history.val_loss or val_loss < min(history.val_loss):
        history.best_epoch = epoch
    history.loss.append(loss)
    history.val_loss.append(val_loss)


def _weights(model: nn.Module) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def _reset(module: nn.Module) -> None:
    if callable(reset := getattr(module, "reset_parameters", None)):
        reset()
    else:
        for child in module.children():
            _reset(child)


def _check_objective(objective: object) -> None:
    require(isinstance(objective, Objective), "objective", "be an objective such as CrossEntropy()", repr(objective))


def _check_data(model: nn.Module, data: PreparedGraph, task: Task) -> None:
    """One forward pass before anything is touched: a graph and a model that do not fit cost nothing."""
    normed = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
    few = normed and data.num_nodes == 1
    require(not few, "data", "have at least two nodes for a model with BatchNorm", 1, "use batch_norm=False")
    num_classes = Outputs.of(model, data, task=task).logits.shape[1]
    for name in ("train_mask", "val_mask"):
        labels = node_labels(data, task)[node_mask(data, name)]
        if task == "multilabel":
            check_binary("y", labels, num_classes, name)
            continue
        low, high = int(labels.min()), int(labels.max())
        require(low >= 0, "y", f"be a class >= 0 for every node of {name}", low)
        require(high < num_classes, "y", f"be < {num_classes}, the model's number of classes, in {name}", high)
    if both := int((node_mask(data, "train_mask") & node_mask(data, "val_mask")).sum()):
        text = (
            f"{both} nodes are in train_mask and in val_mask: the epoch is chosen by nodes that the model learns from"
        )
        warnings.warn(TrainingWarning(text), stacklevel=3)


def _check_exposure(exposure: Graph | None, data: PreparedGraph, objective: Objective) -> PreparedGraph:
    if exposure is None:
        raise exposure_missing(objective)
    graph = admit(exposure, num_features=data.x.shape[1], reused=True)
    together = graph.device == data.device
    require(together, "exposure", f"be on the device of data, {data.device}", graph.device, "call exposure.to(...)")
    node_mask(graph, "mask")
    return graph
