"""The rules that tensors must keep, each said in one line where one is broken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from gnnsafe.errors import InputError, require, require_known

__all__ = [
    "HALF",
    "Task",
    "as_tensor",
    "check_binary",
    "check_classes",
    "check_edge_index",
    "check_features",
    "check_finite",
    "check_labels",
    "check_logits",
    "check_mask",
    "check_no_probabilities",
    "check_node",
    "check_nodes",
    "check_places",
    "check_scores",
    "check_task",
    "check_tensor",
    "full_precision",
    "rounding_of",
]

Task = Literal["multiclass", "multilabel"]
"""What logits mean: one softmax over the classes, or one sigmoid for each label."""
TASKS = get_args(Task)


def check_task(task: object) -> None:
    """A task is one of the two that there are."""
    require_known("task", task, TASKS)


FLOAT32_MAX = torch.finfo(torch.float32).max
HALF = torch.finfo(torch.bfloat16).eps
SUMS = 4 * HALF  # of probabilities in half precision, or of a few digits
MANY = 5  # different nodes whose logits do not all sum to nearly 1 by chance
SOME = 1000  # nodes among which are many different ones, if there are


class Shape(NamedTuple):
    """A tensor as a message describes it; in words only where one is sent, since they cost more than most checks."""

    tensor: Tensor

    def __str__(self) -> str:
        """Its precision and shape."""
        return f"{self.tensor.dtype} {list(self.tensor.shape)}"


def check_tensor(name: str, value: object, *layouts: torch.layout) -> Tensor:
    """`value`, checked to be a tensor: dense, or of one of the `layouts`."""
    if not isinstance(value, Tensor):
        raise InputError(f"'{name}' must be a torch.Tensor (got {type(value).__name__})")
    known = layouts or (torch.strided,)
    if value.layout not in known:
        kinds = " or ".join("dense" if layout == torch.strided else str(layout) for layout in known)
        require(False, name, f"be {kinds}", value.layout)
    require(not value.is_meta, name, "hold numbers", "a tensor on the meta device, which has none")
    return value


def full_precision(tensor: Tensor) -> Tensor:
    """Half precision as float32: it has too few digits for energies, and scipy has none of it."""
    return tensor.float() if tensor.is_floating_point() and tensor.dtype.itemsize < 4 else tensor


def as_tensor(name: str, value: Any) -> Tensor:
    """`value` as a tensor, where it is: a tensor, numpy's or JAX's array, whatever speaks DLPack, or nested lists.

    >>> as_tensor("edge_index", [[0, 1], [1, 2]])
    tensor([[0, 1],
            [1, 2]])
    """
    if isinstance(value, Tensor):
        return value.detach()
    require(value is not None, name, "be an array of numbers", value)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):  # numpy's own refuses what is read-only
        return torch.utils.dlpack.from_dlpack(value)
    try:
        array = np.asarray(value)
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError) as error:
        raise InputError(f"'{name}' must be an array of numbers (got {type(value).__name__}: {error})") from error


def check_features(x: object) -> Tensor:
    """`x`, checked to be floating, [nodes, features], dense or CSR, not empty, and finite."""
    x = check_tensor("x", x, torch.strided, torch.sparse_csr)
    require(
        x.dim() == 2 and x.is_floating_point(),
        "x", "be a floating tensor of shape [nodes, features]", Shape(x),
        "call x.float()" if x.dim() == 2 else "",
    )  # fmt: skip
    require(x.shape[0] > 0, "x", "hold at least one node", Shape(x))
    check_places("x", x)
    check_finite("x", x)
    return x


def check_places(name: str, tensor: Tensor) -> None:
    """The entries of a sparse tensor lie inside it: torch takes that for granted, and reads and writes elsewhere.

    Whether they are sorted and distinct, as torch's own check asks too, makes no difference here.
    """
    if tensor.layout == torch.strided:
        return
    rows, columns = tensor.shape
    inside = True
    if tensor.layout == torch.sparse_coo:
        places = tensor._indices()
        inside = _within(places[0], rows) and _within(places[1], columns)
    else:
        by_row = tensor.layout == torch.sparse_csr
        starts = tensor.crow_indices() if by_row else tensor.ccol_indices()
        places = tensor.col_indices() if by_row else tensor.row_indices()
        ends = int(starts[0]) == 0 and int(starts[-1]) == len(places)
        inside = ends and bool((starts.diff() >= 0).all()) and _within(places, columns if by_row else rows)
    require(inside, name, f"have its entries inside {list(tensor.shape)}", "some outside")


def _within(places: Tensor, size: int) -> bool:
    return places.numel() == 0 or (int(places.min()) >= 0 and int(places.max()) < size)


def check_finite(name: str, tensor: Tensor) -> None:
    """Every entry is a number that float32 has: neither NaN nor infinite, nor beyond its range, as float64 may be.

    A sum of finite numbers is finite unless it overflows, so one cheap reduction clears nearly every tensor
    and only a suspect one is looked at entry by entry.
    """
    sparse = tensor.layout == torch.sparse_csr
    entries = (tensor.values() if sparse else tensor).detach()
    if entries.dtype == torch.float64:  # whose sums are finite beyond the range of float32
        suspect = entries.numel() > 0 and not all(abs(end.item()) <= FLOAT32_MAX for end in torch.aminmax(entries))
    else:
        suspect = not math.isfinite(entries.sum(dtype=torch.float32).item())
    if not suspect:
        return
    bad = ~torch.isfinite(entries)
    if count := int(bad.sum()):
        place = "" if sparse else f", first at {bad.nonzero()[0].tolist()}"
        require(False, name, "be finite", f"{count} NaN or infinite of {entries.numel()} values{place}")
    largest = float(entries.abs().max())
    require(largest <= FLOAT32_MAX, name, "lie within the range of float32, ±3.4e38", f"{largest:.3g}", "rescale it")


def check_logits(logits: Tensor) -> None:
    """Logits are floating, [nodes, classes] and finite."""
    check_tensor("logits", logits)
    require(
        logits.dim() == 2 and logits.is_floating_point() and logits.shape[1] > 0,
        "logits", "be a floating tensor of shape [nodes, classes]", Shape(logits),
    )  # fmt: skip
    check_finite("logits", logits)


def check_no_probabilities(logits: Tensor) -> None:
    """Multiclass logits of several nodes do not all sum to 1, as probabilities do, rounded ones nearly."""
    if not len(logits) or min(first := logits[0].tolist()) < 0 or abs(sum(first) - 1) > SUMS:  # one tells, usually
        return
    near = rounding_of(logits, SUMS)
    distribution = bool((logits >= 0).all() and ((logits.sum(dim=1) - 1).abs() < near).all())
    require(not distribution, "logits", "be unnormalised", "probabilities", "return them from before softmax")


def rounding_of(values: Tensor, half: float) -> float:
    """What a number that is meant to be the same for all nodes may miss it by: `half`, as in half precision.

    Of few different nodes numbers are that near to each other by chance, of one alone any number is what it is: 0.
    """
    different = len(torch.unique(values[:SOME], dim=0))
    return half if different >= MANY else 1e-4 if different > 1 else 0.0


def check_scores(scores: Tensor) -> None:
    """Scores are floating, one per node, and finite."""
    check_tensor("scores", scores)
    require(
        scores.dtype in (torch.float32, torch.float64) and scores.dim() == 1,
        "scores", "be a float32 or float64 tensor of shape [nodes]", Shape(scores),
    )  # fmt: skip
    check_finite("scores", scores)


def check_edge_index(edge_index: Tensor, num_nodes: int) -> None:
    """Edges are integers of shape [2, edges], the ids of `num_nodes` nodes."""
    check_tensor("edge_index", edge_index)
    integer = edge_index.dtype in (torch.int64, torch.int32)
    require(
        edge_index.dim() == 2 and edge_index.shape[0] == 2 and integer,
        "edge_index", "be an int64 or int32 tensor of shape [2, edges]", Shape(edge_index),
        "call edge_index.t()" if integer and edge_index.dim() == 2 and edge_index.shape[1] == 2 else "",
    )  # fmt: skip
    if edge_index.numel():
        low, high = (int(end) for end in torch.aminmax(edge_index))
        require(low >= 0, "edge_index", "hold node ids >= 0", low)
        require(high < num_nodes, "edge_index", f"hold node ids < {num_nodes}, the number of nodes", high)


def check_labels(name: str, y: object, num_nodes: int, task: Task = "multiclass") -> Tensor:
    """`y`, checked to be one int64 class per node; multilabel: a 0 or 1 per node and label.

    Multilabel labels come back as [nodes, labels], those of a single label (a binary head) too.
    """
    y = check_tensor(name, y)
    if task == "multiclass":
        require(
            y.shape == (num_nodes,) and y.dtype == torch.int64,
            name, f"be an int64 tensor of shape [{num_nodes}]", Shape(y),
            f"call {name}.long() if these are classes" if y.shape == (num_nodes,) else "",
        )  # fmt: skip
        return y
    require(
        y.dim() in (1, 2) and len(y) == num_nodes,
        name, f"be a tensor of shape [{num_nodes}, labels]", list(y.shape),
    )  # fmt: skip
    return y.view(num_nodes, -1)


def check_binary(name: str, labels: Tensor, num_labels: int, where: str) -> None:
    """Multilabel labels, [nodes, labels], are as many as the model has, each 0 or 1."""
    require(labels.shape[1] == num_labels, name, f"have the model's {num_labels} labels", labels.shape[1])
    binary = bool(((labels == 0) | (labels == 1)).all())
    require(binary, name, f"be 0 or 1 for every node of {where} and every label", "other values")


def check_classes(name: str, labels: Tensor, num_classes: int, where: str) -> None:
    """The classes of these nodes are among those that the model has."""
    low, high = int(labels.min()), int(labels.max())
    require(low >= 0 and high < num_classes, name, f"lie in 0..{num_classes - 1} for {where}", f"{low}..{high}")


def check_node(node: object, num_nodes: int, name: str = "node", remedy: str = "") -> int:
    """`node`, checked to be the number of a node."""
    inside = isinstance(node, Integral) and not isinstance(node, bool) and int(node) in range(num_nodes)
    require(inside, name, f"be a node's number, 0..{num_nodes - 1}", repr(node), remedy)
    return int(node)  # type: ignore[call-overload, no-any-return]


def check_nodes(name: str, nodes: Any, num_nodes: int) -> Tensor:
    """A mask of the nodes that are given by their numbers or as a mask; they may be none."""
    many = isinstance(nodes, Sequence | np.ndarray | Tensor) or hasattr(nodes, "__dlpack__")
    require(many and not isinstance(nodes, str | bytes), name, "be numbers of nodes, or a mask", type(nodes).__name__)
    given = as_tensor(name, nodes)
    mask = torch.zeros(num_nodes, dtype=torch.bool, device=given.device)
    if given.shape == (0,):
        return mask
    if given.dtype == torch.bool:
        return check_mask(name, given, num_nodes) if given.any() or given.shape != mask.shape else mask
    whole = given.dim() == 1 and given.dtype in (torch.int64, torch.int32)
    require(whole, name, "be numbers of nodes, or a mask", Shape(given))
    low, high = int(given.min()), int(given.max())
    require(low >= 0 and high < num_nodes, name, f"lie in 0..{num_nodes - 1}", f"{low}..{high}")
    mask[given.long()] = True
    return mask


def check_mask(name: str, mask: object, num_nodes: int) -> Tensor:
    """`mask`, checked to be boolean, one entry per node, with at least one node in it."""
    mask = check_tensor(name, mask)
    if mask.dim() == 2 and mask.dtype == torch.bool and len(mask) == num_nodes:
        require(False, name, "be one mask", f"{mask.shape[1]} splits", f"choose a column, such as {name}[:, 0]")
    require(
        mask.dtype == torch.bool and mask.shape == (num_nodes,),
        name, f"be a boolean tensor of shape [{num_nodes}]", Shape(mask),
        "turn node ids into a mask with mask = torch.zeros(nodes, dtype=torch.bool); mask[ids] = True",
    )  # fmt: skip
    require(bool(mask.any()), name, "hold at least one node", "an empty mask")
    return mask
