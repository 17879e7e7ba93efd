"""What several commands share: the types of options, how a graph is read, and a progress bar."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gnnsafe.datasets import read_graph
from gnnsafe.graph import Data

__all__ = ["add_graph_options", "given_graph", "names", "positive", "progress_bar", "share", "terminal", "whole"]

GRAPH = "a folder with nodes and edges tables (.parquet, .csv), a table of nodes, an .npz or a .pt file"


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


def whole(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number >= 0 (got {text!r})")
    return int(text)


def share(text: str) -> float:
    """A number between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must lie in (0, 1) (got {text!r})")
    return value


def add_graph_options(parser: Any) -> None:
    """How a graph of the user's own is read."""
    parser.add_argument("--edges", metavar="FILE", help="the table of edges, where GRAPH is a table of nodes")
    parser.add_argument("--undirected", action="store_true", help="add the reverse of every edge")
    parser.add_argument("--drop-unknown-edges", action="store_true", help="leave out edges of nodes that are not there")


def given_graph(arguments: argparse.Namespace, graph: str | None = None, *, undirected: bool = False) -> Data:
    """The graph of the user's own, the one of the arguments unless told, read as the options say."""
    return read_graph(
        graph or arguments.graph,
        edges=arguments.edges,
        undirected=undirected or arguments.undirected,
        drop_unknown_edges=arguments.drop_unknown_edges,
    )


def terminal() -> Console:
    """Where results are printed: as they are, since a path is not markup."""
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
