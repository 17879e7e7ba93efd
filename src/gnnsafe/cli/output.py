"""What a command says: its answer in words or as JSON on standard output, progress and notes on standard error."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from gnnsafe.display import shown, shown_lines
from gnnsafe.progress import visible

__all__ = ["Answer", "Terminal", "log", "progress_bar", "terminal"]

log = logging.getLogger("gnnsafe.cli")
"""What a command tells beside its answer: notes at INFO, which --quiet leaves out, and warnings."""

Words = RenderableType | Callable[["Terminal"], object]


@dataclass(frozen=True)
class Answer:
    """What a command found: in words for people, as figures for programs, the files that it wrote, its exit code."""

    words: Sequence[Words]
    """Texts and tables, or functions that print on a terminal."""
    figures: Mapping[str, Any]
    files: Sequence[tuple[str, Path | str]] = field(default=())
    """What each file is, and where; a path that is no Path is somewhere else and stays as it is."""
    code: int = 0

    def show(self) -> None:
        """The words, then the files."""
        console = terminal()
        for words in (*self.words, *(f"{kind}: {place}" for kind, place in self._places())):
            if callable(words):
                words(console)
            else:
                console.print(words, soft_wrap=isinstance(words, str))

    def as_json(self) -> str:
        """The figures and the files as one object; what is NaN or infinite is null, for JSON has no such numbers."""
        files = [{"kind": kind, "path": place} for kind, place in self._places()]
        return json.dumps(_plain({**self.figures, **({"files": files} if files else {})}), indent=1, allow_nan=False)

    def _places(self) -> list[tuple[str, str]]:
        return [(kind, str(place.absolute() if isinstance(place, Path) else place)) for kind, place in self.files]


def _plain(value: Any) -> Any:
    """The same as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)


class Terminal(Console):
    """Where results are printed: texts as they are, since a path is not markup, except for what would act on it."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich does, once texts are clean."""
        super().print(*(shown_lines(item) if isinstance(item, str) else item for item in objects), **options)

    def on_broken_pipe(self) -> None:
        """Left to the command line, as all else that reads no further; rich would exit with 1, which is an answer."""
        raise BrokenPipeError


def terminal() -> Terminal:
    """Standard output."""
    return Terminal(highlight=False, markup=False, emoji=False)


class Description(TextColumn):
    """What is being done: a text, in which a path is not markup."""

    def render(self, task: Task) -> Text:
        """The text, clean."""
        return Text(shown(task.description))


def progress_bar() -> Progress:
    """A bar with the time left, on a terminal only."""
    screen = Console(stderr=True)
    return Progress(
        Description(""),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        speed_estimate_period=3600,  # steps differ: the time left goes by all of them
        disable=not visible(screen),
    )
