"""Which code made a record or a trained model: a version, and a hash of the modules that its figures come from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import xxhash

__all__ = ["code_version", "training_version"]

PACKAGE = Path(__file__).parents[1]
IMPORTED = re.compile(r"^\s*(?:from|import) gnnsafe(?:\.(\w+)| import ([\w, ]+))", re.MULTILINE)


def code_version(version: str) -> str:
    """The version and a hash of all code that a study's figures come from, by what `gnnsafe.bench` imports.

    Records of edited code are never taken for those of this. A page or a command that was edited changes no figure.
    """
    return f"{version}+{_digest('bench')}"


def training_version(version: str) -> str:
    """The same for trained models: an edited method leaves them as they are."""
    return f"{version}+{_digest('training', 'datasets')}"


def _digest(*modules: str) -> str:
    digest = xxhash.xxh3_64()
    for module in sorted(_with_imports(*modules)):
        for path in _files(module):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


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
