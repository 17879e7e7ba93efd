"""The command line: thin. One line and exit code 2 for a user's mistake, never a traceback."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from gnnsafe import __version__
from gnnsafe.bench.cores import each
from gnnsafe.bench.paper import SHIFTS
from gnnsafe.bench.plan import Cell
from gnnsafe.bench.recipes import recipes
from gnnsafe.bench.run import Result
from gnnsafe.bench.study import demo_cell
from gnnsafe.bench.summary import summaries
from gnnsafe.cli.bench import add_bench
from gnnsafe.cli.explain import add_explain
from gnnsafe.cli.inspect import add_inspect
from gnnsafe.cli.options import GRAPH, add_graph_options, given_graph, positive, progress_bar, terminal
from gnnsafe.cli.report import add_report
from gnnsafe.cli.score import add_score
from gnnsafe.cli.train import add_train
from gnnsafe.datasets import DATASETS
from gnnsafe.errors import GnnsafeError, GnnsafeWarning
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
        with _warnings_on_one_line():
            return int(arguments.command(arguments) or 0)
    except (GnnsafeError, OSError) as error:
        print(f"gnnsafe: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gnnsafe: interrupted, nothing was written", file=sys.stderr)
        return 130


@contextmanager
def _warnings_on_one_line() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always", GnnsafeWarning)
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, GnnsafeWarning):
                print(f"gnnsafe: {message}", file=sys.stderr)
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield


class _Parser(argparse.ArgumentParser):
    """argparse, with its complaints on one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gnnsafe",
        description="Which nodes of a graph lie outside what its classifier was trained on.",
        epilog="Scores are one per node, higher = more out-of-distribution. Start with: gnnsafe demo; with a graph of "
        "your own: gnnsafe train --help",
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
    datasets.add_argument("graph", metavar="GRAPH", nargs="?", help=GRAPH)
    add_graph_options(datasets)
    datasets.set_defaults(command=_datasets)
    methods = commands.add_parser(
        "methods",
        help="list the methods and the training objectives: kind, what they need, formula and reference",
        description="Lists every method that scores nodes and every objective that trains a model. A method's kind "
        "says what it needs: any classifier (post-hoc), a model made for it, the training graph beside the new one "
        "(transductive), or no model at all (trivial: to be beaten).",
    )
    methods.set_defaults(command=_methods)
    for add in (add_train, add_score, add_explain, add_inspect):
        add(commands)
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
    console = terminal()
    console.print(lead, soft_wrap=True)
    console.print(terminal_grid(demo_grid(summaries(results))))
    console.print(*notes, sep="\n", soft_wrap=True)
    with replacing(out) as part:
        part.write_text(as_html(demo_document(results, lead=lead, notes=notes)), encoding="utf-8")
    console.print(f"Report: {out.absolute()}", soft_wrap=True)


def _datasets(arguments: argparse.Namespace) -> None:
    console = terminal()
    if arguments.graph is not None:
        console.print(*graph_lines(given_graph(arguments)), sep="\n", soft_wrap=True)
        return
    at_hand = {name: dataset.at_hand(arguments.data) for name, dataset in DATASETS.items()}
    console.print(catalogue_table(DATASETS, at_hand))
    console.print("Load one with gnnsafe.load_benchmark(name, shift=...).", soft_wrap=True)


def _methods(arguments: argparse.Namespace) -> None:
    console = terminal()
    console.print(methods_table(METHODS, OBJECTIVES, recipes("cora", "structure")))
    console.print("Propagated(method, steps, alpha) propagates any method's score along the edges.", soft_wrap=True)
