"""A user's model, used by one thread at a time and left as it was found."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import Condition, get_ident
from typing import Any

import torch
from torch import nn

from gnnsafe.hashing import CACHED
from gnnsafe.modes import without_modes

__all__ = ["borrow", "eager", "parts"]

UNCACHED = ("torch.nn.", "gnnsafe.models.")  # modules that keep no graph

_lent: dict[int, tuple[int, int]] = {}  # by module: the thread that has it, and how many times over
_forking: list[int] = []  # threads that wait until no model is in use
_returned = Condition()


def eager(model: Any) -> Any:
    """The model that `torch.compile` wrapped, or the model itself: hooks, names and weights are those of the former."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def parts(model: nn.Module) -> list[nn.Module]:
    """The model and all modules within it, each once: those of `model.modules()`, in a fraction of its time."""
    modules, seen = [model], {model}
    for module in modules:  # which grows meanwhile
        for part in module._modules.values():
            if part is not None and part not in seen:
                seen.add(part)
                modules.append(part)
    return modules


@contextmanager
def borrow(model: nn.Module, *, gradients: bool = False) -> Iterator[list[nn.Module]]:
    """The model in evaluation mode, without gradients unless asked, and without what its layers cached of a graph.

    Other threads wait, since modes, caches and hooks belong to the model and not to a call. Afterwards every submodule
    has the mode and the cache that it had. Gives the model's `parts`.
    """
    modules = parts(model)
    keepers = [module for module in modules if not type(module).__module__.startswith(UNCACHED)]
    _lend(modules)
    try:
        modes, cached = [module.training for module in modules], _cached(keepers)
        try:
            with without_modes(), torch.set_grad_enabled(gradients):
                if any(modes):
                    model.eval()
                _fill(dict.fromkeys(cached), cached)
                yield modules
        finally:
            for module, training in zip(modules, modes, strict=True):
                if module.training != training:
                    module.training = training
            _fill(cached, _cached(keepers))
    finally:
        _give_back(modules)


def _lend(modules: Sequence[nn.Module]) -> None:
    """Wait until no other thread has any of these modules, which two models may share; none is in hand meanwhile."""
    thread = get_ident()
    with _returned:
        while not _free(modules, thread):
            _returned.wait()
        for module in modules:
            _lent[id(module)] = (thread, _lent.get(id(module), (thread, 0))[1] + 1)


def _give_back(modules: Sequence[nn.Module]) -> None:
    with _returned:
        for module in modules:
            thread, times = _lent.pop(id(module))
            if times > 1:
                _lent[id(module)] = (thread, times - 1)
        _returned.notify_all()


def _free(modules: Sequence[nn.Module], thread: int) -> bool:
    """Whether no other thread has any of these modules, nor waits to fork; one that has a model may have more."""
    if _forking and not _owners() >= {thread}:
        return False
    return all(_lent.get(id(module), (thread, 0))[0] == thread for module in modules)


def _owners() -> set[int]:
    return {thread for thread, _ in _lent.values()}


def _before_fork() -> None:
    """A child process has the forking thread alone: what another had in use there, would never be given back."""
    _returned.acquire()
    _forking.append(get_ident())
    _returned.wait_for(lambda: not _owners() or _owners() >= {get_ident()})


def _after_fork() -> None:
    _forking.remove(get_ident())
    _returned.notify_all()
    _returned.release()


def _in_child() -> None:
    _forking.clear()
    _returned.release()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def _cached(modules: Sequence[nn.Module]) -> dict[tuple[nn.Module, str], Any]:
    """What layers keep of a graph: one with `cached=True` would answer about any graph with the edges of the first."""
    return {
        (module, name): values[name]
        for module in modules
        for values in (vars(module), module._buffers)
        for name in _cached_names(tuple(values.keys()))  # a dict, or what TorchScript has instead
    }


@lru_cache
def _cached_names(names: tuple[str, ...]) -> list[str]:
    """Those of what a layer keeps: of a layer's many attributes, looked for once."""
    return [name for name in names if name.startswith(CACHED)]


def _fill(cached: dict[tuple[nn.Module, str], Any], now: dict[tuple[nn.Module, str], Any]) -> None:
    """What layers keep `now` becomes what they cached then."""
    for module, name in now.keys() - cached.keys():
        delattr(module, name)
    for (module, name), value in cached.items():
        if (module, name) not in now or now[module, name] is not value:
            setattr(module, name, value)
