"""What several commands share: the types of options, the terminal, and a progress bar."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["console", "names", "positive", "progress_bar"]


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    given = tuple(part.strip() for part in text.split(",") if part.strip())
    if not given:
        raise argparse.ArgumentTypeError(f"must be names separated by commas (got {text!r})")
    return given


def positive(text: str) -> int:
    """A whole number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1 (got {text!r})")
    return int(text)


def console() -> Console:
    """The terminal, or what takes its place; a path is not markup."""
    return Console(highlight=False, markup=False, emoji=False)


def progress_bar() -> Progress:
    """A bar with the time left, on a terminal only."""
    screen = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        speed_estimate_period=3600,  # steps differ: the time left goes by all of them
        disable=not screen.is_terminal,
    )
