"""What several commands share: the types of options, and how a graph is read."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gnnsafe.datasets import read_graph
from gnnsafe.files import writable
from gnnsafe.graph import Data

__all__ = [
    "add_device_option",
    "add_graph_options",
    "add_method_option",
    "given_files",
    "given_graph",
    "names",
    "output",
    "path",
    "place",
    "positive",
    "share",
    "whole",
]

READ = ("graph", "graphs", "edges", "exposure", "detector", "plan", "nodes")  # options that name what is read

GRAPH = "a folder with nodes and edges tables (.parquet, .csv), a table of nodes, an .npz or a .pt file"


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    given = tuple(part.strip() for part in text.split(",") if part.strip())
    if not given:
        raise argparse.ArgumentTypeError(f"must be names separated by commas (got {text!r})")
    return given


def place(text: str) -> str:
    """A path, as it was given."""
    if not text:
        raise argparse.ArgumentTypeError(f"must be a path (got {text!r})")
    return text


def path(text: str) -> Path:
    """A path."""
    return Path(place(text))


def positive(text: str) -> int:
    """A whole number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1 (got {text!r})")
    return int(text)


def whole(text: str) -> int:
    """A whole number, 0 or more, that torch takes as a seed."""
    if not text.isdecimal() or not int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 0 and < 2**63 (got {text!r})")
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


def add_device_option(parser: Any, default: str = "auto") -> None:
    """Where to compute."""
    parser.add_argument(
        "--device", metavar="auto|cpu|cuda", default=default, help="where to compute: auto takes a GPU of CUDA's where "
        f"there is one (default: {default})",
    )  # fmt: skip


def add_method_option(parser: Any, methods: Iterable[str]) -> None:
    """Which of the methods."""
    listed = tuple(methods)
    parser.add_argument(
        "--method", metavar="NAME", choices=listed, help=f"the OOD score: {', '.join(listed)} (default: two-scale, "
        "less what this graph or model does not allow; with exposure gnnsafe, the paper's)",
    )  # fmt: skip


def add_graph_options(parser: Any) -> None:
    """How a graph of the user's own is read."""
    group = parser.add_argument_group("reading the graph")
    group.add_argument(
        "--edges", metavar="FILE", type=place, help="the table of edges, where GRAPH is a table of nodes"
    )
    reverse = "add the reverse of every edge (detectors that were trained so do it by themselves)"
    group.add_argument("--undirected", action="store_true", help=reverse)
    group.add_argument("--drop-unknown-edges", action="store_true", help="leave out edges of unknown nodes")


def given_graph(arguments: argparse.Namespace, graph: str | None = None, *, undirected: bool = False) -> Data:
    """The graph of the user's own, by default the one of the arguments, read as the options say."""
    return read_graph(
        graph or arguments.graph,
        edges=arguments.edges,
        undirected=undirected or arguments.undirected,
        drop_unknown_edges=arguments.drop_unknown_edges,
    )


def given_files(arguments: argparse.Namespace) -> list[Path]:
    """The files that a command reads, which it must not write over."""
    values = [getattr(arguments, name, None) for name in READ]
    given = [Path(one) for value in values if value for one in (value if isinstance(value, list) else [value])]
    inside = [file for folder in given if folder.is_dir() for file in folder.iterdir()]
    return given + [file for file in inside if file.stem in ("nodes", "edges", "detector")]


def output(arguments: argparse.Namespace, file: str) -> Path:
    """Where `--out` says to write, or `file` in it where that is a folder; no file that is read."""
    return writable("--out", Path(arguments.out), file=file, inputs=given_files(arguments))
