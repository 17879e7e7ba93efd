"""One look at a model that gnnsafe does not know: what does it write into, is it random, what does it keep?"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from gnnsafe.calling import PLAIN_CALL, WRITTEN, passed, unnamed
from gnnsafe.errors import ModelWarning, require
from gnnsafe.graph import stored
from gnnsafe.hashing import content, entries
from gnnsafe.hetero import NodeTypeGraph
from gnnsafe.outputs import Classifier, Outputs
from gnnsafe.prepared import PreparedGraph, admit
from gnnsafe.regions import renumbered

__all__ = ["ROUNDING", "gap", "parts_rounding", "probe"]

ROUNDING = 1e-4  # of the largest logit: what float32 may lose on the way, with a wide margin
REORDERED = 1e-3  # of the largest logit: what sums in another order may differ by
ROUNDINGS = 32  # of the model's own precision, where that is coarser
OF_PARTS = 4  # the same where nodes and edges keep their order: only products of other sizes may round otherwise


def probe(classifier: Classifier, graph: PreparedGraph) -> Outputs:
    """The model's outputs on the graph; a model that writes into it is refused, what else is odd is said."""
    found = _unwritten(classifier, graph)
    outputs = replace(found, logits=found.logits.clone())
    name = type(classifier.model).__name__
    if classifier.forward is None and (taken := passed(classifier.model, graph)):
        _warn(
            f"{name}'s forward takes {', '.join(taken)}, and what data holds of it is passed on; if the model was "
            f"trained without, give {PLAIN_CALL})"
        )
    if classifier.forward is None and (names := unnamed(classifier.model, graph)):
        _warn(
            f"{name}'s forward names no {', '.join(names)}, and what data holds of it is not passed on; if the model "
            f"reads it, give {PLAIN_CALL}, data.{names[0]})"
        )
    if (difference := gap(outputs.logits, outputs.again().logits)) > 0:
        _warn(
            f"{name} answers differently at each call, its logits by up to {difference:.2g}, and so do its scores; "
            "leave dropout to its training mode (training=self.training) and draw nothing at random in evaluation"
        )
    elif isinstance(graph.data, NodeTypeGraph):
        if _deaf(outputs):
            _warn(
                f"{name} gives the same logits without edges: it reads none, or it keeps those of the first graph that "
                "it saw and answers with them about every other; see that it caches nothing"
            )
    elif kept := _by_number(classifier, outputs):
        _warn(kept)
    same, overwritten = torch.equal(found.logits, outputs.logits), "a forward that writes others into them"
    require(same, "model", "leave the logits that it gave as they are", overwritten, "return logits.clone()")
    return outputs


def gap(logits: Tensor, others: Tensor, rounding: float = ROUNDING) -> float:
    """The largest difference, 0 where it is within rounding."""
    difference, largest = (float(values.abs().max()) if values.numel() else 0.0 for values in (logits - others, logits))
    return difference if difference > rounding * largest else 0.0


def _unwritten(classifier: Classifier, graph: PreparedGraph) -> Outputs:
    """The outputs, once the graph's tensors are known to hold what they held before; else that is put back."""
    read = {"x": graph.x, "edge_index": graph.edge_index, **stored(graph)}
    tensors = {name: value.detach() for name, value in read.items() if isinstance(value, Tensor)}
    held = [(name, part, part.clone()) for name, tensor in tensors.items() for part in entries(tensor).values()]
    written: list[str] = []
    try:
        outputs = classifier(graph)
    finally:
        for name, part, before in held:
            now, then = (content(one).reshape(-1).view(np.uint8) for one in (part, before))  # NaN is what it was, too
            if not np.array_equal(now, then):
                written.append(name)
                part.copy_(before)
    require(not written, "model", f"leave data.{', data.'.join(written)} as it is", *WRITTEN)
    return outputs


def _by_number(classifier: Classifier, outputs: Outputs) -> str:
    """What is to be said of logits that differ once the nodes have other numbers; nothing where they do not."""
    graph, name, read = outputs.graph, type(classifier.model).__name__, classifier.read(outputs.graph)
    nodes = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0), device="cpu").to(graph.x.device)
    try:
        data, guessed = renumbered(graph.data, nodes)
        again = classifier(admit(data))
    except Exception as error:  # it reads an index or a matrix of the graph, or wants edges in an order of its own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return (
            f"it could not be checked whether {name} keeps part of a graph that it saw (edges, norms), and would score "
            f"another graph with it: with its nodes in another order it gave no logits ({reason}); see that it caches "
            "nothing"
        )
    rounding = max(REORDERED, ROUNDINGS * _precision(classifier.model, graph.x))
    difference = gap(outputs.logits[nodes], again.logits, rounding)
    unclear = [f"data.{one}" for one in guessed if read is None or one in read]
    if not difference:
        return ""
    return (
        f"{name}'s logits depend on how nodes are numbered, by up to {difference:.2g}: it keeps "
        "part of a graph that it saw (edges, norms) or has weights by node number, and would score another graph "
        "with them; see that it caches nothing"
        + (f", or call {', '.join(unclear)} node_… or edge_… by what its rows belong to" if unclear else "")
    )


def parts_rounding(outputs: Outputs) -> float:
    """What logits may lose in another part of a graph, as a share of the largest: half precision rounds coarsely."""
    model = outputs.classifier
    return ROUNDING if model is None else max(ROUNDING, OF_PARTS * _precision(model.model, outputs.graph.x))


def _precision(model: nn.Module, x: Tensor) -> float:
    """The coarsest that the features and weights have."""
    tensors = (x, *model.parameters())
    return max((torch.finfo(one.dtype).eps for one in tensors if one.is_floating_point()), default=0.0)


def _deaf(outputs: Outputs) -> bool:
    source, target = outputs.graph.edge_index
    try:
        return bool((source != target).any()) and torch.equal(outputs.logits, outputs.without_edges.logits)
    except Exception:  # it cannot be asked without edges, so it reads them
        return False


def _warn(message: str) -> None:
    warnings.warn(message, ModelWarning, stacklevel=5)  # where fit was called
