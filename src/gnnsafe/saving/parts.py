"""Methods and what belongs to them as JSON and tensors, and back: every field is held against its declared type.

A file may come from anybody. What it says is therefore never called or set unless it is a field of a known class, of
the type that the class declares, and numbers by which work is done, such as rounds of propagation, are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from gnnsafe.calibration import Calibration
from gnnsafe.display import shown
from gnnsafe.errors import InputError, SavedFileError, require
from gnnsafe.explanation import TrainingClasses
from gnnsafe.methods import METHODS, Propagated
from gnnsafe.methods.grasp import GraphNodes
from gnnsafe.scaling import FeatureScaling

__all__ = ["PARTS", "Unpacking", "packed"]

PARTS: dict[str, type[Any]] = {method.__name__: method for method in METHODS.values()}
PARTS |= {part.__name__: part for part in (Propagated, GraphNodes, Calibration, TrainingClasses, FeatureScaling)}

MOST_ROUNDS = 10_000  # that a whole number in a file may ask for, such as steps; sizes may be as large as its tensors
LARGEST = 1e300  # of other numbers
PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", NoneType: "null"}


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
class Unpacking:
    """Values of a file, each of the type that is asked for; a `SavedFileError` names the one that is not."""

    tensors: Mapping[str, Tensor]

    def value(self, kind: Any, value: Any, name: str) -> Any:
        """What `packed` made `value` of, if that is a `kind`; `name` is the same as for `packed`."""
        origin, options = get_origin(kind), get_args(kind)
        if kind is Any:
            return value
        if origin in (Union, UnionType):
            return self._either(options, value, name)
        if origin is Literal:
            return value if value in options else _refuse(name, f"one of {', '.join(options)}", value)
        if origin is tuple:
            return self._tuple(options, value, name)
        if origin is dict:
            if not isinstance(value, dict):
                _refuse(name, "a table", value)
            return {key: self.value(options[1], item, f"{name}.{key}") for key, item in value.items()}
        if kind is Tensor:
            return self._tensor(value, name)
        return self._plain(kind, value, name) if kind in PLAIN else self._part(kind, value, name)

    def count(self, value: Any, name: str) -> Any:
        """A number of rounds, layers or channels: no larger than what the file itself is."""
        sizes = (size for tensor in self.tensors.values() for size in tensor.shape)
        most = max(MOST_ROUNDS, *sizes, 0)
        return value if value <= most else _refuse(name, f"at most {most}", value)

    def fields(self, kinds: Mapping[str, Any], values: Mapping[str, Any], name: str) -> dict[str, Any]:
        """The values of those of the fields that are there, and no others; whole numbers among them are counts."""
        for field in values.keys() - kinds.keys():
            _refuse(f"{name}.{field}", "left out", values[field])
        made = {field: self.value(kinds[field], value, f"{name}.{field}") for field, value in values.items()}
        for field, value in made.items():
            if type(value) is int:
                self.count(value, f"{name}.{field}")
        return made

    def _either(self, options: tuple[Any, ...], value: Any, name: str) -> Any:
        same = [option for option in options if option is type(value)]
        others = [option for option in options if option is not NoneType]
        return self.value((same or others)[0], value, name)

    def _tuple(self, options: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            _refuse(name, "a list", value)
        kinds = [options[0]] * len(value) if options[1:] == (...,) else options
        if len(kinds) != len(value):
            _refuse(name, f"a list of {len(kinds)}", value)
        pairs = enumerate(zip(kinds, value, strict=True))
        return tuple(self.value(kind, item, f"{name}.{place}") for place, (kind, item) in pairs)

    def _plain(self, kind: type, value: Any, name: str) -> Any:
        right = (int, float) if kind is float else (kind,)
        if type(value) not in right:
            _refuse(name, PLAIN[kind], value)
        if kind is float and not -LARGEST < value < LARGEST:
            _refuse(name, "a finite number", value)
        return value

    def _tensor(self, value: Any, name: str) -> Tensor:
        tensor = self.tensors.get(name)
        if tensor is None or value not in (
            {"tensor": name, "columns": columns} for columns in (False, tensor.dim() == 2)
        ):
            _refuse(name, "the tensor of that name", value)
        return tensor.T.contiguous().T if value["columns"] else tensor

    def _part(self, kind: Any, value: Any, name: str) -> Any:
        part: Any = PARTS.get(value["is"]) if isinstance(value, dict) and isinstance(value.get("is"), str) else None
        if part is None or not issubclass(part, kind):
            _refuse(name, f"a {kind.__name__}", value)
        kinds = get_type_hints(part)
        given = {field.name for field in fields(part) if field.init}
        values = self.fields(
            {field.name: kinds[field.name] for field in fields(part)},
            {field: item for field, item in value.items() if field != "is"},
            name,
        )
        try:
            made = part(**{field: item for field, item in values.items() if field in given})
        except (InputError, TypeError) as error:  # a rule of its own, or an argument that is not there
            raise SavedFileError(f"'{name}': {error}") from error
        for field in values.keys() - given:
            setattr(made, field, values[field])
        return made


def _refuse(name: str, rule: str, value: Any) -> NoReturn:
    text = shown(repr(value))
    raise SavedFileError(f"'{name}' must be {rule} (got {text if len(text) <= 60 else text[:60] + '…'})")
