"""Methods and what belongs to them as JSON and tensors, and back: every field is checked against its declared type.

A file may come from anywhere. What it says is therefore never called or set unless it is a field of a known class, of
the type that the class declares, and numbers by which work is done, such as rounds of propagation, are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from gnnsafe.calibration import Calibration, KnownClasses
from gnnsafe.display import shown
from gnnsafe.errors import InputError, SavedFileError, require
from gnnsafe.explanation import TrainingClasses
from gnnsafe.held_out import KnownNodes, UsedNodes
from gnnsafe.methods import METHODS, Method, Propagated
from gnnsafe.methods.grasp import GraphNodes
from gnnsafe.registry import NAME
from gnnsafe.scaling import FeatureScaling
from gnnsafe.typed import Typed, refuse

__all__ = ["PARTS", "Unpacking", "UnregisteredError", "packed"]

_PARTS = (Propagated, GraphNodes, Calibration, KnownClasses, TrainingClasses, FeatureScaling, KnownNodes, UsedNodes)
PARTS: dict[str, type[Any]] = {part.__name__: part for part in _PARTS}  # beside what is registered in METHODS

REMEDY = "put @METHODS.register('its-name') above its @dataclass"
MOST_ROUNDS = 10_000  # that a whole number in a file may ask for, such as steps; sizes may be as large as its tensors


class UnregisteredError(SavedFileError):
    """A file is whole, and names a class that is not registered."""


def packed(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """`value` as JSON: a method or a part of one as its fields, a tensor as its name in `tensors`, where it is put."""
    if isinstance(value, Tensor):
        tensors[name] = value
        # A matrix stored by columns is to be so again: what BLAS computes may depend on that in its last bit.
        return {"tensor": name, "columns": value.dim() == 2 and not value.is_contiguous() and value.T.is_contiguous()}
    if is_dataclass(value):
        kept = [field.name for field in fields(value) if field.name in vars(value)]  # except for what was never fitted
        _check_kept(value, kept)
        return {
            "is": _name(value),
            **{field: packed(getattr(value, field), f"{name}.{field}", tensors) for field in kept},
        }
    if isinstance(value, (tuple, list)):
        return [packed(item, f"{name}.{place}", tensors) for place, item in enumerate(value)]
    if isinstance(value, dict):
        require(all(isinstance(key, str) for key in value), name, "have texts as keys to be saved", repr(value))
        return {key: packed(item, f"{name}.{key}", tensors) for key, item in value.items()}
    plain = value.item() if isinstance(value, np.generic) else value
    held = plain is None or isinstance(plain, str | int | float)
    require(held, name, "be a tensor, a number, a text, or a list or dict of such, to be saved", type(value).__name__)
    return plain


def _name(value: Any) -> str:
    name = type(value).__name__
    if PARTS.get(name) is type(value):
        return name
    registered = METHODS.name_of(type(value))
    require(registered is not None, "method", "be registered to be saved", repr(value), REMEDY)
    return str(registered)


def _check_kept(value: Any, kept: list[str]) -> None:
    """All that an object holds is in its fields: nothing that it has learnt stays behind."""
    held = [name for name in vars(value) if not isinstance(getattr(type(value), name, None), cached_property)]
    lost = next((name for name in held if name not in kept), None)
    rule = "hold what it learns in fields, such as 'mean_: Tensor = fitted()', to be saved"
    require(lost is None, type(value).__name__, rule, f"{lost}, which is none")


@dataclass(frozen=True)
class Unpacking(Typed):
    """What `packed` packed, of the types that are asked for; names are the same as for `packed`."""

    tensors: Mapping[str, Tensor]

    def other(self, kind: Any, value: Any, name: str) -> Any:
        """A tensor, or one of the `PARTS`."""
        if kind is Tensor:
            return self._tensor(value, name)
        named = value.get("is") if isinstance(value, dict) else None
        part: Any = (PARTS.get(named) or METHODS.get(named)) if isinstance(named, str) else None
        if part is None and kind is Method and isinstance(named, str) and NAME.fullmatch(named):
            raise UnregisteredError(
                f"'{name}' must be a registered method (got '{shown(named)}'); import or install what registers it"
            )
        if part is None or not issubclass(part, kind):
            refuse(name, f"a {getattr(kind, '__name__', kind)}", value)
        values = self.fields(part, {field: item for field, item in value.items() if field != "is"}, name)
        for field, item in values.items():
            if type(item) is int:
                self.count(item, f"{name}.{field}")
        given = {field.name for field in fields(part) if field.init}
        try:
            made = part(**{field: item for field, item in values.items() if field in given})
        except (InputError, RecursionError):
            raise
        except Exception as error:  # of a class that is not one of gnnsafe.models
            raise InputError(f"'{name}' must be what a {part.__name__} takes (got {error})") from error
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
