"""Constructor arguments as a record of an experiment can keep them."""

from __future__ import annotations

from abc import ABCMeta
from dataclasses import is_dataclass
from inspect import Signature, signature
from numbers import Integral, Real
from typing import Any, get_type_hints

from gnnsafe.errors import InputError, require

__all__ = ["PlainNumbers", "check_configuration", "declared_types", "plain_number"]


def plain_number(value: Any) -> Any:
    """A number of numpy's, or of any other kind, as Python's own; anything else as it is.

    >>> import numpy as np
    >>> plain_number(np.int64(2)), plain_number(np.float32(0.5)), plain_number("keep")
    (2, 0.5, 'keep')
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


class PlainNumbers(ABCMeta):
    """The type of classes whose arguments are the configuration: whatever numbers they are given, they get Python's.

    So `KNN(k=np.int64(5))` is `KNN(k=5)`: it behaves, prints, compares and is saved as that.
    """

    @property
    def __signature__(cls) -> Signature:
        """That of the constructor, for inspection."""
        own = signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=list(own.parameters.values())[1:])

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Construct it with plain numbers."""
        return super().__call__(
            *map(plain_number, args), **{name: plain_number(value) for name, value in kwargs.items()}
        )


def check_configuration(kind: Any) -> None:
    """Raise an `InputError` unless a registered method or objective is what records and files can tell from others.

    It is a dataclass whose fields are of declared types and have defaults, and two of the same settings are equal, also
    by their `repr`.
    """
    remedy = "put @dataclass between @….register(…) and the class"
    require(is_dataclass(kind), kind.__name__, "be a dataclass", "another class", remedy)
    declared_types(kind, kind.__name__)
    try:
        one, other = kind(), kind()
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"'{kind.__name__}' must be made without arguments too (got {reason})") from error
    require(repr(one) == repr(other) and one == other, kind.__name__, "be described by its fields", repr(one), remedy)


def declared_types(declaring: Any, name: str) -> dict[str, Any]:
    """The types that a class's fields or a function's arguments are declared with."""
    try:
        return get_type_hints(declaring)
    except Exception as error:
        raise InputError(f"'{name}' must declare types that can be found (got {error})") from error
