"""Somebody's model, used by one thread at a time and left as it was found."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, get_ident
from typing import Any

import torch
from torch import nn

from gnnsafe.hashing import CACHED
from gnnsafe.modes import without_modes

__all__ = ["borrowed", "eager"]

UNCACHED = ("torch.nn.", "gnnsafe.models.")  # modules that keep no graph

_lent: dict[int, tuple[int, int]] = {}  # by module: the thread that has it, and how many times over
_forking: list[int] = []  # threads that wait until no model is in use
_returned = Condition()


def eager(model: Any) -> Any:
    """The model that `torch.compile` wrapped, or the model itself: hooks, names and weights are those of the former."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


@contextmanager
def borrowed(model: nn.Module, *, gradients: bool = False) -> Iterator[None]:
    """The model in evaluation mode, without gradients unless asked, and without what its layers cached of a graph.

    Other threads wait, since modes, caches and hooks belong to the model and not to a call. Afterwards every submodule
    has the mode and the cache that it had.
    """
    modules = list(model.modules())
    with (
        _alone(modules),
        _evaluating(model, modules),
        _uncached(modules),
        without_modes(),
        torch.set_grad_enabled(gradients),
    ):
        yield


@contextmanager
def _alone(parts: Sequence[nn.Module]) -> Iterator[None]:
    """No other thread has any of these modules, which two models may share; nobody waits with some of them in hand."""
    thread, modules = get_ident(), list(map(id, parts))
    nobody = (thread, 0)
    with _returned:
        _returned.wait_for(lambda: _free(modules))
        _lent.update({module: (thread, _lent.get(module, nobody)[1] + 1) for module in modules})
    try:
        yield
    finally:
        with _returned:
            for module in modules:
                _, times = _lent.pop(module)
                if times > 1:
                    _lent[module] = (thread, times - 1)
            _returned.notify_all()


def _free(modules: Sequence[int]) -> bool:
    """Whether no other thread has any of these modules, nor waits to fork; one that has a model may have more."""
    thread = get_ident()
    return (not _forking or _owners() >= {thread}) and all(
        _lent.get(module, (thread, 0))[0] == thread for module in modules
    )


def _owners() -> set[int]:
    return {thread for thread, _ in _lent.values()}


def _before_fork() -> None:
    """A child process has the forking thread alone: what another had in use there, nobody would ever give back."""
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


@contextmanager
def _evaluating(model: nn.Module, modules: Sequence[nn.Module]) -> Iterator[None]:
    modes = [(module, module.training) for module in modules]
    if any(training for _, training in modes):
        model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            if module.training != training:
                module.training = training


@contextmanager
def _uncached(modules: Sequence[nn.Module]) -> Iterator[None]:
    """A layer with `cached=True` would answer about any graph with the edges of the first."""
    before = _cached(modules)
    for module, name in before:
        setattr(module, name, None)
    try:
        yield
    finally:
        for module, name in _cached(modules).keys() - before.keys():
            delattr(module, name)
        for (module, name), value in before.items():
            setattr(module, name, value)


def _cached(modules: Sequence[nn.Module]) -> dict[tuple[nn.Module, str], Any]:
    others = [module for module in modules if not type(module).__module__.startswith(UNCACHED)]
    return {
        (module, name): value
        for module in others
        for values in (vars(module), module._buffers)
        for name, value in values.items()
        if name.startswith(CACHED)
    }
