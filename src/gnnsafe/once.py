"""A property that is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["once"]

Value = TypeVar("Value")


class once(Generic[Value]):  # noqa: N801 - a decorator, as property is
    """What a method gives, kept with its object from the first time on: `functools.cached_property` without its lock.

    Up to Python 3.11 that is one for all objects of a class: threads would wait for each other's models, and a process
    that is forked meanwhile for ever. Two threads that read one property at once may both compute it.

    >>> class Circle:
    ...     @once
    ...     def area(self):
    ...         print("computed")
    ...         return 3
    >>> circle = Circle()
    >>> circle.area + circle.area
    computed
    6
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, instance: Any, owner: type) -> Value:
        if instance is None:
            return self  # type: ignore[return-value]
        return vars(instance).setdefault(self.compute.__name__, self.compute(instance))  # type: ignore[no-any-return]
