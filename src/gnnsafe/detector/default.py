"""The method of a detector for which none was named."""

from __future__ import annotations

import warnings

from torch import Tensor

from gnnsafe.errors import GnnsafeError, InputError, MethodWarning, require
from gnnsafe.graph import Graph, node_mask
from gnnsafe.methods import GNNSafe, Method, TwoScale
from gnnsafe.outputs import Outputs

__all__ = ["fit_default"]

ENOUGH = 20  # validation nodes, for p-values among them to say anything


def fit_default(outputs: Outputs, y: Tensor, mask: Tensor) -> Method:
    """TwoScale, fitted; where it cannot be, TwoScale of those of its parts that can; else GNNSafe.

    A model or `forward` that cannot run without edges costs `OutOfPlace`, features without cosines
    `CentredCosine`, log-probabilities `Energy`. A graph without `val_mask`, with fewer than 20 nodes in it or with
    training nodes among them has nothing to compare with: GNNSafe, which learns nothing. One `MethodWarning` says why,
    and what takes its place. Any error of a part decides, since a model may raise any.
    """
    try:
        _check_validation(outputs.graph, mask)
    except InputError as error:
        return _said(GNNSafe().fit(outputs, y, mask), error)
    try:
        return TwoScale().fit(outputs, y, mask)
    except Exception as error:
        why = error
    return _said(_rest(outputs, y, mask).fit(outputs, y, mask), why)


def _check_validation(graph: Graph, mask: Tensor) -> None:
    held_out = node_mask(graph, "val_mask")
    count, taught = int(held_out.sum()), int((held_out & mask).sum())
    rule, got = f"hold at least {ENOUGH} nodes, no training node among them", f"{count} nodes, {taught} of training"
    require(count >= ENOUGH and not taught, "val_mask", rule, got, "hold out more ID nodes")


def _rest(outputs: Outputs, y: Tensor, mask: Tensor) -> Method:
    """TwoScale of what can be fitted; GNNSafe where no evidence of some kind is left, or where no part is to blame."""
    whole, outputs = TwoScale(), outputs.with_embeddings()
    unlike, unknown, surroundings = (
        tuple(part for part in parts if _fits(part, outputs, y, mask))
        for parts in (whole.unlike, whole.unknown, whole.surroundings)
    )
    rest = TwoScale(unlike, unknown, surroundings) if unlike and unknown and surroundings else whole
    return GNNSafe() if rest == whole else rest


def _fits(part: Method, outputs: Outputs, y: Tensor, mask: Tensor) -> bool:
    try:
        part.fit(outputs, y, mask).score(outputs)
    except Exception:
        return False
    return True


def _said(method: Method, why: Exception) -> Method:
    """The method, once it is said that it is not the one that was meant."""
    lost = dict.fromkeys(_called(part) for part in TwoScale().parts() if part not in method.parts())
    name = f"TwoScale without {' and '.join(lost)}" if isinstance(method, TwoScale) else type(method).__name__
    reason = str(why) if isinstance(why, GnnsafeError) else f"{type(why).__name__}: {why}"
    remedy = "to choose one yourself, name it, such as 'gnnsafe'"
    text = f"TwoScale, the default method, cannot be fitted ({reason}): {name} takes its place; {remedy}"
    warnings.warn(text, MethodWarning, stacklevel=4)  # where fit was called
    return method


def _called(part: Method) -> str:
    """Its class, and that of the one within: other parts that propagate may be left."""
    within = " and ".join(_called(one) for one in part.parts())
    return f"{type(part).__name__}({within})" if within else type(part).__name__
