"""Constructor arguments as a record of an experiment can keep them."""

from __future__ import annotations

from abc import ABCMeta
from inspect import Signature, signature
from numbers import Integral, Real
from typing import Any

__all__ = ["PlainNumbers", "plain_number"]


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
        """That of the constructor, for whoever asks what it takes."""
        own = signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=list(own.parameters.values())[1:])

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Construct it with plain numbers."""
        return super().__call__(
            *map(plain_number, args), **{name: plain_number(value) for name, value in kwargs.items()}
        )
