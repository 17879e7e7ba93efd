"""Values read from JSON, checked against the types that a dataclass declares for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from gnnsafe.display import shown
from gnnsafe.errors import InputError

__all__ = ["Typed", "declared", "refuse"]

LARGEST = 1e300
PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", NoneType: "null"}


@cache
def declared(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass and their types."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


@cache
def _needed(kind: Any) -> set[str]:
    given = [field for field in fields(kind) if field.init]
    return {field.name for field in given if field.default is MISSING and field.default_factory is MISSING}


class Typed:
    """Makes values of JSON what they are declared to be; an `InputError` names the first that is something else.

    Nothing is converted. Numbers are finite, and a whole one may stand for any.
    """

    def value(self, kind: Any, value: Any, name: str) -> Any:
        """`value` as a `kind`: a plain type, a dataclass, or a list, tuple, dict, Literal or Union of such."""
        origin, options = get_origin(kind), get_args(kind)
        if kind is Any:
            return value
        if origin in (Union, UnionType):
            same = [option for option in options if option is type(value)]
            others = [option for option in options if option is not NoneType]
            return self.value((same or others)[0], value, name)
        if origin is Literal:
            return value if value in options else refuse(name, f"one of {', '.join(options)}", value)
        if origin in (tuple, list):
            return origin(self._items(options, value, name))
        if origin is dict:
            _require(isinstance(value, dict), name, "a table", value)
            return {key: self.value(options[1], item, f"{name}.{key}") for key, item in value.items()}
        return self._plain(kind, value, name) if kind in PLAIN else self.other(kind, value, name)

    def other(self, kind: Any, value: Any, name: str) -> Any:
        """`value` as what is none of the types above: a dataclass, from a table of its fields."""
        _require(isinstance(value, dict), name, "a table", value)
        return kind(**self.fields(kind, value, name))

    def fields(self, kind: Any, values: Mapping[str, Any], name: str) -> dict[str, Any]:
        """The values of a dataclass's fields: no other, and all that it cannot be made without."""
        kinds, path = declared(kind), f"{name}." if name else ""
        for field in values.keys() - kinds.keys():
            refuse(f"{path}{field}", "left out", values[field])
        for needed in _needed(kind) - values.keys():
            refuse(f"{path}{needed}", "there", "none")
        return {field: self.value(kinds[field], item, f"{path}{field}") for field, item in values.items()}

    def _items(self, options: tuple[Any, ...], value: Any, name: str) -> list[Any]:
        _require(isinstance(value, list), name, "a list", value)
        many = len(options) == 1 or options[1:] == (...,)
        kinds = [options[0]] * len(value) if many else options
        _require(len(kinds) == len(value), name, f"a list of {len(kinds)}", value)
        pairs = enumerate(zip(kinds, value, strict=True))
        return [self.value(kind, item, f"{name}.{place}") for place, (kind, item) in pairs]

    def _plain(self, kind: type, value: Any, name: str) -> Any:
        _require(type(value) in ((int, float) if kind is float else (kind,)), name, PLAIN[kind], value)
        _require(kind is not float or -LARGEST < value < LARGEST, name, "a finite number", value)
        return value


def refuse(name: str, rule: str, value: object) -> NoReturn:
    """Say what is wrong with a value, as `errors.require` does, however long it is."""
    text = shown(value if value == "none" else repr(value))
    raise InputError(f"'{name}' must be {rule} (got {text if len(text) <= 60 else text[:60] + '…'})")


def _require(holds: bool, name: str, rule: str, value: object) -> None:
    if not holds:
        refuse(name, rule, value)
