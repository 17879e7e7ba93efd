"""Random numbers of a training's own, out of torch's global ones; threads that draw those take turns."""

from __future__ import annotations

import os
import threading

import torch
from torch import Tensor

__all__ = ["DRAWING", "OwnRandomness"]

DRAWING = threading.RLock()  # held while a thread draws torch's global random numbers
if hasattr(os, "register_at_fork"):  # a child process has no other thread to give them back
    os.register_at_fork(before=DRAWING.acquire, after_in_parent=DRAWING.release, after_in_child=DRAWING.release)


class OwnRandomness:
    """Within it, torch's global random numbers are those of a seed, and go on where they were last left.

    Weights are drawn and units dropped by torch's global generators, the CPU's and that of the model's device, which
    have no thread of their own. So they are lent: to one training at a time, for as long as that draws, and are
    afterwards in the state that they were in. Trainings in several threads then draw what each would draw alone.
    Without a seed the numbers are those that would come next.
    """

    def __init__(self, seed: int | None, device: torch.device | str = "cpu") -> None:
        self.generators = [torch.default_generator, *_generators(torch.device(device))]
        with DRAWING:  # else they may be another's
            self.states = [
                one.get_state() if seed is None else torch.Generator(one.device).manual_seed(seed).get_state()
                for one in self.generators
            ]

    def __enter__(self) -> None:
        DRAWING.acquire()
        self.outside = self._exchanged(self.states)

    def __exit__(self, *_: object) -> None:
        self.states = self._exchanged(self.outside)
        DRAWING.release()

    def _exchanged(self, states: list[Tensor]) -> list[Tensor]:
        before = [one.get_state() for one in self.generators]
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)
        return before


def _generators(device: torch.device) -> list[torch.Generator]:
    """The device's own generator, where torch shows it: CUDA's and XPU's."""
    every = () if device.type == "cpu" else getattr(torch.get_device_module(device), "default_generators", ())
    return [every[device.index or 0]] if every else []
