"""Classes by name: gnnsafe's own, those that a user registers, and those that installed packages announce."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from typing import Any, TypeVar

from gnnsafe.errors import RegistrationWarning, require
from gnnsafe.once import once

__all__ = ["NAME", "Registry"]

Kind = TypeVar("Kind")
AnyClass = TypeVar("AnyClass", bound=type)

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Registry(Mapping[str, type[Kind]]):
    """A table of classes by name: gnnsafe's own first, in their order, then what was registered.

    What is registered works as ours does: by name in `Detector`, in `save` and `load`, on the command line and in
    `gnnsafe bench`. A class is registered by the decorator,

        @METHODS.register("laplace")
        @dataclass
        class Laplace(Method): ...

    or announced by an installed package, whose pyproject.toml says

        [project.entry-points."gnnsafe.methods"]
        laplace = "their_package:Laplace"

    It is imported when first needed. One that cannot be used is left out, and a `RegistrationWarning` says
    whose it is and why.
    """

    def __init__(self, noun: str, base: type, own: Mapping[str, type[Kind]], check: Callable[[Any], None]) -> None:
        """Args:
        noun: What a class of it is called, "method"; the group of entry points is "gnnsafe.methods".
        base: What its classes derive from.
        own: Those of gnnsafe.
        check: Raises an `InputError` for a class that cannot be used like them.
        """
        self.noun, self.own = noun, frozenset(own.values())
        self._base, self._check = base, check
        self._classes, self._failed, self._loading = dict(own), dict[str, str](), threading.RLock()

    def register(self, name: str) -> Callable[[AnyClass], AnyClass]:
        """A decorator that registers a class under `name`.

        Args:
            name: Lower-case words joined by hyphens. A class that is defined again, as in a notebook's cell, takes its
                own place.

        Raises:
            InputError: The name is taken, or the class cannot be used.
        """

        def registered(kind: AnyClass) -> AnyClass:
            self._add(name, kind)
            return kind

        return registered

    def name_of(self, kind: type) -> str | None:
        """The name that a class is registered under; None where it is not."""
        tables = (self._classes, self) if issubclass(kind, self._base) else ()
        for names in tables:  # packages are imported only where it is none that is known
            for name in list(names):
                if names[name] is kind:
                    return name
        return None

    def __getitem__(self, name: str) -> type[Kind]:
        """The class of that name; of all packages only the one that announces it is imported."""
        if name not in self._classes:
            if name in self._failed:
                self._warn(name)
            self._load([entry for entry in list(self._announced) if entry.name == name])
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        self._load(list(self._announced))
        return iter(list(self._classes))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"<{self.noun}s: {', '.join(self)}>"

    @once
    def _announced(self) -> dict[EntryPoint, None]:
        """What installed packages announce and was not loaded yet, in a lasting order."""
        found = entry_points(group=f"gnnsafe.{self.noun}s")
        return dict.fromkeys(sorted(found, key=lambda entry: (entry.name, entry.value)))

    def _load(self, entries: list[EntryPoint]) -> None:
        for entry in entries:
            with self._loading:
                if entry not in self._announced:
                    continue  # another thread was first, or this is asked by what is just imported
                del self._announced[entry]
                try:
                    self._add(entry.name, entry.load())
                except (Exception, SystemExit) as error:
                    reason = " ".join(f"{type(error).__name__}: {error}".split())
                    package = entry.dist.name if entry.dist else entry.value
                    self._failed[entry.name] = (
                        f"the package '{package}' announces the {self.noun} '{entry.name}' ({entry.value}), which is "
                        f"left out ({reason}); update or remove '{package}'"
                    )
                    self._warn(entry.name)

    def _warn(self, name: str) -> None:
        warnings.warn(self._failed[name], RegistrationWarning, stacklevel=4)

    def _add(self, name: object, kind: Any) -> None:
        rule = f"be lower-case words joined by hyphens, such as 'my-{self.noun}'"
        require(isinstance(name, str) and NAME.fullmatch(name) is not None, "name", rule, repr(name))
        derived = isinstance(kind, type) and issubclass(kind, self._base)
        require(derived, self.noun, f"be a class derived from {self._base.__name__}", repr(kind))
        lacking = ", ".join(sorted(getattr(kind, "__abstractmethods__", ())))
        require(not isabstract(kind), self.noun, f"define {lacking}", f"{kind.__name__}, which does not")
        taken = self._classes.get(str(name), kind)
        ours_again = taken not in self.own and _full_name(taken) == _full_name(kind)
        require(taken is kind or ours_again, "name", "be free", f"'{name}', which is {'.'.join(_full_name(taken))}")
        self._check(kind)
        self._classes[str(name)] = kind


def _full_name(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
