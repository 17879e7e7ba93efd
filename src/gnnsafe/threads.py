"""Work that is shared among threads: the loops of numpy and scipy let others run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["in_threads"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results in the order of the items, by as many threads as torch uses; they end with the call.

    >>> in_threads(abs, [-1, 2])
    [1, 2]
    """
    items = list(items)
    if len(items) < 2 or torch.get_num_threads() == 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return list(pool.map(work, items))
