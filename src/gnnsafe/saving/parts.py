"""Methods and what belongs to them as JSON and tensors, and back: every field is held against its declared type.

A file may come from anybody. What it says is therefore never called or set unless it is a field of a known class, of
the type that the class declares, and numbers by which work is done, such as rounds of propagation, are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import Tensor

from gnnsafe.calibration import Calibration
from gnnsafe.errors import require
from gnnsafe.explanation import TrainingClasses
from gnnsafe.held_out import KnownNodes, UsedNodes
from gnnsafe.methods import METHODS, Propagated
from gnnsafe.methods.grasp import GraphNodes
from gnnsafe.scaling import FeatureScaling
from gnnsafe.typed import Typed, refuse

__all__ = ["PARTS", "Unpacking", "packed"]

PARTS: dict[str, type[Any]] = {method.__name__: method for method in METHODS.values()}
_LEARNT = (Propagated, GraphNodes, Calibration, TrainingClasses, FeatureScaling, KnownNodes, UsedNodes)
PARTS |= {part.__name__: part for part in _LEARNT}

MOST_ROUNDS = 10_000  # that a whole number in a file may ask for, such as steps; sizes may be as large as its tensors


def packed(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """`value` as JSON: a method or a part of one as its fields, a tensor as its name in `tensors`, where it is put."""
    if isinstance(value, Tensor):
        tensors[name] = value
        # A matrix stored by columns is to be so again: what BLAS computes may depend on that in its last bit.
        return {"tensor": name, "columns": value.dim() == 2 and not value.is_contiguous() and value.T.is_contiguous()}
    if is_dataclass(value):
        known = PARTS.get(type(value).__name__) is type(value)
        require(known, "method", "be one of gnnsafe.methods to be saved", repr(value))
        kept = [field.name for field in fields(value) if field.name in vars(value)]  # but for what was never fitted
        return {
            "is": type(value).__name__,
            **{field: packed(getattr(value, field), f"{name}.{field}", tensors) for field in kept},
        }
    if isinstance(value, (tuple, list)):
        return [packed(item, f"{name}.{place}", tensors) for place, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: packed(item, f"{name}.{key}", tensors) for key, item in value.items()}
    return value.item() if hasattr(value, "item") else value  # numpy's numbers


@dataclass(frozen=True)
class Unpacking(Typed):
    """What `packed` packed, of the types that are asked for; names are the same as for `packed`."""

    tensors: Mapping[str, Tensor]

    def other(self, kind: Any, value: Any, name: str) -> Any:
        """A tensor, or one of the `PARTS`."""
        if kind is Tensor:
            return self._tensor(value, name)
        part: Any = PARTS.get(value["is"]) if isinstance(value, dict) and isinstance(value.get("is"), str) else None
        if part is None or not issubclass(part, kind):
            refuse(name, f"a {kind.__name__}", value)
        values = self.fields(part, {field: item for field, item in value.items() if field != "is"}, name)
        for field, item in values.items():
            if type(item) is int:
                self.count(item, f"{name}.{field}")
        given = {field.name for field in fields(part) if field.init}
        made = part(**{field: item for field, item in values.items() if field in given})
        for field in values.keys() - given:
            setattr(made, field, values[field])
        return made

    def count(self, value: int, name: str) -> None:
        """A number of rounds, layers or channels is no larger than what the file itself is."""
        most = max(MOST_ROUNDS, *(size for tensor in self.tensors.values() for size in tensor.shape), 0)
        if value > most:
            refuse(name, f"at most {most}", value)

    def _tensor(self, value: Any, name: str) -> Tensor:
        tensor = self.tensors.get(name)
        if tensor is None or value not in (
            {"tensor": name, "columns": columns} for columns in (False, tensor.dim() == 2)
        ):
            refuse(name, "the tensor of that name", value)
        return tensor.T.contiguous().T if value["columns"] else tensor
