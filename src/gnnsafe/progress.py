"""How far work that takes a while has come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

__all__ = ["progress", "visible"]

PATIENCE = 2.0  # seconds before it is shown

log = logging.getLogger(__name__)
"""Nothing is written to it; bars are left out where its level is above WARNING."""


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A call for every step done; a bar on a terminal, once the work has taken a while."""
    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not visible(console))
    task, start = bar.add_task(title, total=total), time.monotonic()

    def advance() -> None:
        bar.advance(task)
        if time.monotonic() - start > PATIENCE:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()


def visible(console: Console) -> bool:
    """Whether a bar is drawn there: a terminal, and `logging.getLogger("gnnsafe.progress")` not told to be quiet."""
    return console.is_terminal and log.isEnabledFor(logging.WARNING)
