"""Which code made a record or a trained model: a version, and a hash of the modules that its figures come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import xxhash

from gnnsafe.methods import Method

__all__ = ["code_version", "method_version", "training_version"]

PACKAGE = Path(__file__).parents[1]
IMPORTED = re.compile(r"^\s*(?:from|import) gnnsafe(?:\.(\w+)| import ([\w, ]+))", re.MULTILINE)
IMPORTED_METHOD = re.compile(r"^\s*from gnnsafe\.methods\.(\w+) import", re.MULTILINE)


def code_version(version: str) -> str:
    """The version and a hash of the code that figures come from, by what `gnnsafe.bench` imports, but for methods.

    Records of edited code are never taken for those of this. A page or a command that was edited changes no figure,
    and a method that was edited changes its own alone (`method_version`).
    """
    return f"{version}+{_digest(_files_of(_with_imports('bench') - {'methods'}))}"


def training_version(version: str) -> str:
    """The same for trained models: an edited method leaves them as they are."""
    return f"{version}+{_digest(_files_of(_with_imports('training', 'datasets')))}"


def method_version(method: Method) -> str:
    """A hash of the files of `gnnsafe.methods` that a method's scores come from: its own, its parts', what they import.

    A method that is not gnnsafe's own may read any of them.
    """
    places = [kind.__module__.rpartition(".") for kind in _kinds(method)]
    ours = all(package == "gnnsafe.methods" for package, _, _ in places)
    return _methods_digest(frozenset(name for _, _, name in places) if ours else None)


def _kinds(method: Method) -> Iterator[type[Method]]:
    yield type(method)
    for value in vars(method).values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Method):
                yield from _kinds(part)


@cache
def _methods_digest(names: frozenset[str] | None) -> str:
    """Of the files of these names and of those that they import, and so on; of all where there are no names."""
    found: set[Path] = set()
    left = _files("methods") if names is None else [PACKAGE / "methods" / f"{name}.py" for name in names]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            imported = IMPORTED_METHOD.findall(path.read_text(encoding="utf-8"))
            left += (path.with_name(f"{name}.py") for name in imported)
    return _digest(sorted(found))


def _digest(paths: Iterable[Path]) -> str:
    digest = xxhash.xxh3_64()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def _files_of(modules: Iterable[str]) -> Iterator[Path]:
    return (path for module in sorted(modules) for path in _files(module))


def _with_imports(*modules: str) -> set[str]:
    """These modules of gnnsafe, with those that they import, and so on; a package is taken whole."""
    found, left = set(), [*modules]
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += (name for path in _files(module) for name in _imported(path))
    return found


def _imported(path: Path) -> Iterator[str]:
    for module, names in IMPORTED.findall(path.read_text(encoding="utf-8")):
        yield from (name for name in re.split(r"[, ]+", module or names) if _files(name))


def _files(module: str) -> list[Path]:
    return [path for path in (PACKAGE / f"{module}.py", *sorted((PACKAGE / module).rglob("*.py"))) if path.is_file()]
