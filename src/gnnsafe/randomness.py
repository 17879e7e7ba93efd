"""Random numbers of a training's own, out of torch's global ones; whoever draws those takes turns."""

from __future__ import annotations

import threading

import torch

__all__ = ["DRAWING", "OwnRandomness"]

DRAWING = threading.RLock()  # held by whoever draws torch's global random numbers


class OwnRandomness:
    """Within it, torch's global random numbers are those of a seed, and go on where they were last left.

    Weights are drawn and units dropped by torch's one global generator, which has no thread of its own. So it is lent:
    to one training at a time, for as long as that draws, and is afterwards in the state that it was in. Trainings in
    several threads then draw what each would draw alone. Without a seed the numbers are those that would come next.
    """

    def __init__(self, seed: int | None) -> None:
        with DRAWING:  # else they may be another's
            self.state = torch.get_rng_state() if seed is None else torch.Generator().manual_seed(seed).get_state()

    def __enter__(self) -> None:
        DRAWING.acquire()
        self.outside = torch.get_rng_state()
        torch.set_rng_state(self.state)

    def __exit__(self, *_: object) -> None:
        self.state = torch.get_rng_state()
        torch.set_rng_state(self.outside)
        DRAWING.release()
