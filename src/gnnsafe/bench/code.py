"""Which code made a record or a trained model: a version, and a hash of the modules that its figures come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import xxhash

from gnnsafe.methods import Method

__all__ = ["code_version", "method_version", "training_version"]

IMPORTED = re.compile(r"^\s*(?:from|import) gnnsafe(?:\.(\w+)| import ([\w, ]+))", re.MULTILINE)
IMPORTED_METHOD = re.compile(r"^\s*from gnnsafe\.methods\.(\w+) import", re.MULTILINE)


def _sources() -> dict[str, bytes]:
    """Every file of the package."""
    package = Path(__file__).parents[1]
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in sorted(package.rglob("*.py"))}


SOURCES = _sources()  # as they are when a process begins: what is edited from then on is not what it runs


def code_version(version: str) -> str:
    """The version and a hash of the code that figures come from, by what `gnnsafe.bench` imports, but for methods.

    Records of edited code are never taken for those of this. A page or a command that was edited changes no figure,
    and a method that was edited changes its own alone (`method_version`).
    """
    return f"{version}+{_digest(_with_imports('bench') - {'methods'})}"


def training_version(version: str) -> str:
    """The same for trained models: an edited method leaves them as they are."""
    return f"{version}+{_digest(_with_imports('training', 'datasets'))}"


def method_version(method: Method) -> str:
    """A hash of the files of `gnnsafe.methods` that a method's scores come from: its own, its parts', what they import.

    A method that is not gnnsafe's own may read any of them.
    """
    places = [kind.__module__.rpartition(".") for kind in _kinds(method)]
    if any(package != "gnnsafe.methods" for package, _, _ in places):
        return _digest(["methods"])
    found, left = set(), [name for _, _, name in places]
    while left:
        name = f"methods/{left.pop()}"
        if name not in found:
            found.add(name)
            left += IMPORTED_METHOD.findall(SOURCES[f"{name}.py"].decode())
    return _digest(found)


def _kinds(method: Method) -> Iterator[type[Method]]:
    yield type(method)
    for part in method.parts():
        yield from _kinds(part)


def _digest(modules: Iterable[str]) -> str:
    digest = xxhash.xxh3_64()
    for module in sorted(modules):
        for name in _files(module):
            digest.update(SOURCES[name])
    return digest.hexdigest()[:8]


def _with_imports(*modules: str) -> set[str]:
    """These modules of gnnsafe, with those that they import, and so on; a package is taken whole."""
    found, left = set(), [*modules]
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += (name for file in _files(module) for name in _imported(SOURCES[file].decode()))
    return found


def _imported(text: str) -> Iterator[str]:
    for module, names in IMPORTED.findall(text):
        yield from (name for name in re.split(r"[, ]+", module or names) if _files(name))


def _files(module: str) -> list[str]:
    """Its own, or those of the package of that name."""
    return [name for name in SOURCES if name == f"{module}.py" or name.startswith(f"{module}/")]
