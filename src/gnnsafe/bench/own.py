"""Methods of your own: what a Python file defines, as recipes beside gnnsafe's."""

from __future__ import annotations

import os
import sys
import traceback
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import isabstract
from pathlib import Path
from types import ModuleType

from gnnsafe.bench.recipes import Recipe, alone_and_propagated
from gnnsafe.errors import InputError, require
from gnnsafe.methods import Method

__all__ = ["own_recipes"]

_loaded: dict[Path, tuple[bytes, ModuleType]] = {}  # run once as long as the text is the same


def own_recipes(file: str, *, backbone: str = "gcn") -> list[Recipe]:
    """Every method that the file defines, alone and propagated, with a hash of its text: edited, it is another."""
    path = Path(os.path.realpath(file))
    require(path.is_file(), "methods", "name files that are there", repr(file))
    text = path.read_bytes()
    if path not in _loaded or _loaded[path][0] != text:
        _loaded[path] = text, _module(file, path, text)
    methods = _methods(file, _loaded[path][1])
    return [recipe for method in methods for recipe in alone_and_propagated(method, backbone)]


def _module(file: str, path: Path, text: bytes) -> ModuleType:
    """The file's text, run under the name by which a worker process imports it when it is handed the method."""
    name = path.stem
    require(name.isidentifier(), "methods", "name files of letters, digits and _", repr(file))
    require(not _taken(path), "methods", f"name no file for a module that there is, {name}", repr(file), "rename it")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # which workers inherit; at the end, where it hides nothing from them
    spec = spec_from_file_location(name, path)
    assert spec is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        code = compile(text, path, "exec", dont_inherit=True)
        exec(code, vars(module))  # not by its loader, which may find an older text compiled
    except BaseException as error:  # sys.exit() too
        del sys.modules[name]
        raise _refusal(file, error) from error
    return module


def _taken(path: Path) -> bool:
    """Whether to import its name is to import something else."""
    if path.stem in sys.modules:
        return getattr(sys.modules[path.stem], "__file__", None) != str(path)
    spec = find_spec(path.stem)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() != path


def _methods(file: str, module: ModuleType) -> list[type[Method]]:
    methods = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Method) and not isabstract(value)
        if (value.__module__, value.__name__) == (module.__name__, name)  # not what it imports
    ]
    require(bool(methods), "methods", "name files that define a Method with base_scores", f"none in {file!r}")
    for method in methods:
        try:
            one, other = method(), method()
            alike = repr(one) == repr(other)
        except BaseException as error:
            raise _refusal(file, error, f"{method.__name__}(): ") from error
        require(alike, "methods", "be dataclasses: records tell them by their repr", f"{method.__name__} in {file!r}")
    return methods


def _refusal(file: str, error: BaseException, where: str = "") -> BaseException:
    """What went wrong in the file and in which line, on one line; Ctrl-C stays what it is."""
    if isinstance(error, KeyboardInterrupt):
        return error
    path = os.path.realpath(file)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    place = f"line {lines[-1]}, " if lines else ""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return InputError(f"'methods' must name files that can be run (got {file!r}: {place}{where}{reason})")
