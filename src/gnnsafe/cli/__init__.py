"""The command line: thin. One line and exit code 2 for a user's mistake, never a traceback."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from gnnsafe import __version__
from gnnsafe.bench.cores import each
from gnnsafe.bench.paper import SHIFTS
from gnnsafe.bench.plan import Cell
from gnnsafe.bench.recipes import recipes
from gnnsafe.bench.run import Result
from gnnsafe.bench.study import demo_cell
from gnnsafe.bench.summary import summaries
from gnnsafe.cli.bench import add_bench
from gnnsafe.cli.options import console, positive, progress_bar
from gnnsafe.cli.report import add_report
from gnnsafe.datasets import DATASETS, read_graph
from gnnsafe.errors import GnnsafeError
from gnnsafe.files import replacing, writable
from gnnsafe.methods import METHODS
from gnnsafe.report.catalogue import catalogue_table, graph_lines
from gnnsafe.report.demo import demo_document, demo_grid
from gnnsafe.report.document import as_html
from gnnsafe.report.grid import terminal_grid
from gnnsafe.report.methods import methods_table
from gnnsafe.report.plotting import altair
from gnnsafe.training import OBJECTIVES

__all__ = ["main"]

DEMO_FILE = "gnnsafe-demo.html"
DEMO_NOTES = (
    "Percent; AUROC, AUPR: higher is better, FPR95: lower; AUPR and FPR95 with ID nodes as positives, as in the paper.",
    "'paper' is its published AUROC: one seed, the public split (pass --data a folder with Planetoid/Cora/raw for it).",
    "Paper protocol: the score of a node that nobody points to decays; 'keep' is our default, which leaves it alone.",
)

QUICK_NOTE = "A quick look: 50 epochs are too few for the paper's figures."


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments) or 0)
    except (GnnsafeError, OSError) as error:
        print(f"gnnsafe: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gnnsafe: interrupted, nothing was written", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """argparse, with its complaints on one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gnnsafe",
        description="Which nodes of a graph lie outside what its classifier was trained on.",
        epilog="Scores are one per node, higher = more out-of-distribution. Start with: gnnsafe demo",
    )
    parser.add_argument("--version", action="version", version=f"gnnsafe {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="OOD detection on real Cora under three shifts, beside the paper's figures",
        description="Trains the paper's GCN on real Cora; MSP, Energy, GNNSafe and GNNSafe++ then tell its test nodes "
        "from those of a graph with redrawn edges (structure), blended features (feature) or left-out classes (label). "
        "Prints a table and writes a page with the energy distributions. Takes about half a minute.",
    )
    demo.add_argument(
        "--data", metavar="FOLDER", help="folder with PyG's Planetoid/Cora/raw (default: $GNNSAFE_DATA, then the Cora "
        "carried by the package graphdatascience, then PyG's download)",
    )  # fmt: skip
    demo.add_argument("--seeds", metavar="N", type=positive, help="how many to average over (default: 3; quick: 1)")
    demo.add_argument(
        "--out", metavar="FILE", type=Path, default=DEMO_FILE, help=f"where to write the page (default: {DEMO_FILE})"
    )
    demo.add_argument("--quick", action="store_true", help="one seed and 50 epochs, for a first look in seconds")
    demo.set_defaults(command=_demo)
    datasets = commands.add_parser(
        "datasets",
        help="list the data sets, their sizes and shifts, and whether they are at hand; or check a graph of your own",
        description="Lists every data set that load_benchmark knows: published counts, the shifts it can be under, and "
        "whether its files are at hand in the data root, the cache or an installed package. With GRAPH, reads a graph "
        "of your own instead, as gnnsafe.read_graph does, and says what is in it or which rule it breaks.",
    )
    datasets.add_argument("--data", metavar="FOLDER", help="the data root (default: $GNNSAFE_DATA)")
    datasets.add_argument(
        "graph", metavar="GRAPH", nargs="?", help="a folder with nodes and edges tables (.parquet, .csv), a table of "
        "nodes, an .npz or a .pt file",
    )  # fmt: skip
    datasets.add_argument("--edges", metavar="FILE", help="the table of edges, where GRAPH is a table of nodes")
    datasets.add_argument("--undirected", action="store_true", help="add the reverse of every edge")
    datasets.add_argument(
        "--drop-unknown-edges", action="store_true", help="leave out edges of nodes that are not there"
    )
    datasets.set_defaults(command=_datasets)
    methods = commands.add_parser(
        "methods",
        help="list the methods and the training objectives: kind, what they need, formula and reference",
        description="Lists every method that scores nodes and every objective that trains a model. A method's kind "
        "says what it needs: any classifier (post-hoc), a model made for it, the training graph beside the new one "
        "(transductive), or no model at all (trivial: to be beaten).",
    )
    methods.set_defaults(command=_methods)
    add_bench(commands)
    add_report(commands)
    return parser


def _demo(arguments: argparse.Namespace) -> None:
    altair()
    out = writable("--out", arguments.out, file=DEMO_FILE)
    seeds = arguments.seeds or (1 if arguments.quick else 3)
    epochs = 50 if arguments.quick else 200
    cells = [Cell("cora", shift, seed, epochs=epochs) for shift in SHIFTS for seed in range(seeds)]
    results: list[Result] = []
    with progress_bar() as progress:
        task = progress.add_task("Training on Cora under three shifts", total=len(cells))
        for source, cell_results in each(partial(demo_cell, root=arguments.data), cells):  # noqa: B007 - the same for all cells
            results += cell_results
            progress.advance(task)
    notes = (*DEMO_NOTES, *([QUICK_NOTE] if arguments.quick else []))
    seeds_text = "1 seed" if seeds == 1 else f"mean ± std of {seeds} seeds"
    lead = f"Cora from {source}. GCN, {epochs} epochs, {seeds_text}."
    screen = console()
    screen.print(lead, soft_wrap=True)
    screen.print(terminal_grid(demo_grid(summaries(results))))
    screen.print(*notes, sep="\n", soft_wrap=True)
    with replacing(out) as part:
        part.write_text(as_html(demo_document(results, lead=lead, notes=notes)), encoding="utf-8")
    screen.print(f"Report: {out.absolute()}", soft_wrap=True)


def _datasets(arguments: argparse.Namespace) -> None:
    screen = console()
    if arguments.graph is not None:
        data = read_graph(
            arguments.graph,
            edges=arguments.edges,
            undirected=arguments.undirected,
            drop_unknown_edges=arguments.drop_unknown_edges,
        )
        screen.print(*graph_lines(data), sep="\n", soft_wrap=True)
        return
    at_hand = {name: dataset.at_hand(arguments.data) for name, dataset in DATASETS.items()}
    screen.print(catalogue_table(DATASETS, at_hand))
    screen.print("Load one with gnnsafe.load_benchmark(name, shift=...).", soft_wrap=True)


def _methods(arguments: argparse.Namespace) -> None:
    screen = console()
    screen.print(methods_table(METHODS, OBJECTIVES, recipes("cora", "structure")))
    screen.print("Propagated(method, steps, alpha) propagates any method's score along the edges.", soft_wrap=True)
