"""`gnnsafe score`: every node of one graph or of several scored and decided about, a table for each."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnsafe.cli.engines import (
    ENGINES,
    add_engine_options,
    asked_of,
    check_engine_options,
    engine_answer,
    listed_nodes,
    opened,
    said_figures,
    said_lines,
)
from gnnsafe.cli.options import (
    GRAPH,
    add_device_option,
    add_graph_options,
    given_files,
    given_graph,
    path,
    place,
    share,
    whole,
)
from gnnsafe.cli.output import Answer, progress_bar
from gnnsafe.cli.parsing import examples
from gnnsafe.detector import ClassSets, Decisions, Detector, load
from gnnsafe.devices import chosen_device, on_device
from gnnsafe.errors import require
from gnnsafe.files import warned_after, writable
from gnnsafe.graph import Data, moved
from gnnsafe.report.decisions import Summary, check_ending, write_table
from gnnsafe.saving import read

__all__ = ["configure"]

FILE = "scores.parquet"
FALSE_ALARM = 0.05
P_VALUES = ("exact", "randomized", "extrapolated")


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `score`."""
    parser.description = (
        "Scores every node of a graph by a detector that 'gnnsafe train' (or Detector.save) has written. "
        "The table has a row per node: its id, the predicted class and its probability, the score (higher = more "
        "out-of-distribution), the p-value among held-out ID nodes, a flag: true = out-of-distribution, and with "
        "--sets the classes that the node conforms to. Prints a summary, by time where the graph has a column "
        "'timestamp'. Several graphs give a table each, named after them."
    )
    parser.epilog = examples(
        "gnnsafe score detector/ new_graph/ --out scores.csv --fdr 0.1",
        "gnnsafe score detector/ monday/ tuesday/ --out scores/",
        "gnnsafe score detector/ graph/ --engine duckdb --memory 4GB --out scores/",
    ) + (
        "Error rates hold on average for ID nodes that are like the calibration nodes, and say nothing of OOD nodes. "
        "An ID node whose neighbours have shifted is scored with them and may be flagged more often: where new classes "
        "stood beside them, 5% asked became 3% to 6% of ID nodes by two-scale, the default method, and 4% to 10% by "
        "gnnsafe on four graphs of papers and products, 38% and 71% by gnnsafe on two dense social graphs. Where --fdr "
        "flags nothing for want of calibration nodes, decide about fewer nodes (--nodes), extend the tail of the "
        "p-values (--p-values extrapolated) or estimate how many nodes are ID (--storey)."
    )
    parser.add_argument("detector", metavar="DETECTOR", type=place, help="the folder of a detector")
    parser.add_argument("graphs", metavar="GRAPH", nargs="+", type=place, help=GRAPH)
    parser.add_argument(
        "--out", metavar="FILE", type=place, required=True, help="the table to write, .parquet or .csv by its ending; "
        "for several graphs the folder of their tables",
    )  # fmt: skip
    level = parser.add_mutually_exclusive_group()
    level.add_argument(
        "--false-alarm", metavar="SHARE", type=share, help=f"of ID nodes at most this share is flagged (default: "
        f"{FALSE_ALARM})",
    )  # fmt: skip
    level.add_argument("--fdr", metavar="SHARE", type=share, help="of the flagged nodes at most this share is ID")
    parser.add_argument(
        "--nodes", metavar="FILE", type=path, help="decide about these nodes alone: a text file with an id per line; "
        "the table has only them, and --fdr weighs each among them",
    )  # fmt: skip
    parser.add_argument(
        "--p-values", choices=P_VALUES, default="exact", help="exact (default); randomized: ties are broken at random "
        "by --seed; extrapolated: beyond the calibration nodes' 0.9-quantile by a fitted tail, which assumes that "
        "theirs, exponential or heavier, goes on so",
    )  # fmt: skip
    parser.add_argument(
        "--storey", action="store_true", help="with --fdr: estimate how many nodes are ID by those with p > 1/2, "
        "instead of counting all; assumes that ID nodes score no higher than the calibration nodes did",
    )  # fmt: skip
    parser.add_argument(
        "--sets", metavar="ERROR", type=share, help="add a column 'set': the classes that the node conforms to, as a "
        "list (in CSV as JSON), empty for none of the known classes; at most this share of ID nodes lacks its own",
    )  # fmt: skip
    parser.add_argument(
        "--page", metavar="FILE", type=path, help="also write a page, .html: how many are flagged beside what is "
        "expected, p-values, the most unusual nodes; for one graph and --false-alarm",
    )  # fmt: skip
    parser.add_argument("--seed", metavar="N", type=whole, default=0, help="seed of --p-values randomized (default: 0)")
    add_device_option(parser)
    add_graph_options(parser)
    add_engine_options(parser, ENGINES)
    parser.set_defaults(command=_score)


def _score(arguments: argparse.Namespace) -> Answer:
    require(not arguments.storey or arguments.fdr, "--storey", "be given with --fdr", "no --fdr")
    if arguments.engine != "memory":
        return _score_in_engine(arguments)
    check_engine_options(arguments)
    page = _page(arguments)
    tables = _tables(arguments)
    from gnnsafe.engines.fits import check_fits  # with pyarrow, which is there if a table can be written

    for graph in tables:
        check_fits(graph, arguments.edges)
    detector = load(arguments.detector, device=arguments.device)
    detector.calibrated()
    words: list[Any] = []
    found = []
    for graph, table in tables.items():
        said, decided, sets = _decided(arguments, detector, graph, table)
        figures = said_figures(said, _level(arguments), arguments.fdr) | _set_figures(arguments, sets)
        lines = said_lines(figures) + _set_lines(figures)
        words += [f"{graph}: {'; '.join(lines)}"] if len(tables) > 1 else lines
        words += [*said.over_time(), *([said.histogram()] if len(tables) == 1 else [])]
        found.append({"graph": graph, **figures, "table": table.absolute()})
    files = [("Table", table) for table in tables.values()]
    if page is not None:
        from gnnsafe.service.filed import write_page

        level = arguments.false_alarm or FALSE_ALARM
        write_page(page, decided, detector, title=Path(graph).absolute().stem, false_alarm=level)
        files.insert(0, ("Page", page))
    return Answer(words, {"graphs": found}, files)


def _score_in_engine(arguments: argparse.Namespace) -> Answer:
    """One graph, by an engine that needs not have it in memory."""
    from gnnsafe.engines import score
    from gnnsafe.engines.scoring import planned
    from gnnsafe.engines.sources import table_in
    from gnnsafe.engines.support import check_saved

    several = ", ".join(arguments.graphs)
    require(len(arguments.graphs) == 1, "GRAPH", f"be one with --engine {arguments.engine}", several)
    memory = "leave it out, or take --engine memory"
    for name in ("sets", "page"):
        value = getattr(arguments, name)
        require(value is None, f"--{name}", f"be left out with --engine {arguments.engine}", value, memory)
    rule = f"be exact with --engine {arguments.engine}"
    require(arguments.p_values == "exact", "--p-values", rule, arguments.p_values, memory)
    rule = f"be cpu or left out with --engine {arguments.engine}, which computes there"
    require(arguments.device in ("auto", "cpu"), "--device", rule, arguments.device, "leave it out")
    graph, edges = arguments.graphs[0], arguments.edges
    nodes, edges = (graph, edges) if edges else (table_in(graph, "nodes"), table_in(graph, "edges"))
    check_saved(read(Path(arguments.detector))[0])
    detector = load(arguments.detector, device="cpu")
    planned(detector)  # before Spark starts
    asked = asked_of(arguments, default=FALSE_ALARM)
    with opened(arguments, nodes, edges) as engine:
        how = {"undirected": arguments.undirected, "drop_unknown_edges": arguments.drop_unknown_edges}
        said = score(engine, detector, nodes, edges, out=arguments.out, asked=asked, **how)
    answer = engine_answer(said, asked)
    ((_, table),) = answer.files
    where = table.absolute() if isinstance(table, Path) else table  # or an address
    return replace(answer, figures={"graphs": [{"graph": graph, **answer.figures, "table": where}]})


def _decided(
    arguments: argparse.Namespace, detector: Detector, graph: str, table: Path
) -> tuple[Summary, Decisions, ClassSets | None]:
    """One graph read, decided about and written; what is said about the given nodes."""
    with progress_bar() as progress:
        task = progress.add_task(f"Reading {graph}", total=3)
        data = given_graph(arguments, graph, undirected=detector.undirected)
        mask = _asked(arguments, data)
        progress.update(task, description="Scoring", completed=1)
        there = moved(data, chosen_device(arguments.device))
        with warned_after():
            decided = on_device(detector.decide(there, mask=mask, **_settings(arguments)), torch.device("cpu")).of(mask)
            sets = detector.predict_sets(there, error=arguments.sets).of(mask) if arguments.sets else None
            progress.update(task, description="Writing", completed=2)
            rows = decided.to_arrow()
            write_table(table, rows if sets is None else rows.append_column("set", sets.to_arrow()["set"]))
    times = data.timestamp[mask].numpy() if "timestamp" in data else None
    columns = (decided.scores.numpy(), decided.p_values.numpy(), decided.flags.numpy())
    return Summary.of(str(table), *columns, times), decided, sets


def _page(arguments: argparse.Namespace) -> Path | None:
    """Where the page goes, once it is known that one can be made."""
    if arguments.page is None:
        return None
    require(len(arguments.graphs) == 1 and not arguments.fdr, "--page", "be for one graph, without --fdr", "others")
    require(arguments.page.suffix.lower() == ".html", "--page", "end in .html", f"'{arguments.page}'")
    import gnnsafe.service  # noqa: F401 - says what is missing

    return writable("--page", arguments.page, file="scores.html", inputs=given_files(arguments))


def _tables(arguments: argparse.Namespace) -> dict[str, Path]:
    """Where each graph's table goes; none is a file that is read."""
    graphs: list[str] = arguments.graphs
    inputs, out = given_files(arguments), Path(arguments.out)
    if len(graphs) == 1:
        tables = [writable("--out", out, file=FILE, inputs=inputs)]
        check_ending("--out", tables[0])
        return dict(zip(graphs, tables, strict=True))
    require(arguments.edges is None, "--edges", "be left out for several graphs", arguments.edges)
    names = [Path(graph).absolute().stem for graph in graphs]
    require(len({*names}) == len(names), "GRAPH", "have names of their own, as their tables do", ", ".join(names))
    require(not out.is_file(), "--out", "be a folder for several graphs", f"'{out}'")
    tables = [writable("--out", out / f"{name}.parquet", file=f"{name}.parquet", inputs=inputs) for name in names]
    check_ending("--out", tables[0])
    return dict(zip(graphs, tables, strict=True))


def _asked(arguments: argparse.Namespace, data: Data) -> Tensor:
    """The nodes to decide about: those that --nodes names, or all."""
    if arguments.nodes is None:
        return torch.ones(data.num_nodes, dtype=torch.bool)
    numbers = {str(node): number for number, node in enumerate(data.node_id)}
    asked = listed_nodes(arguments.nodes)
    unknown = next((text for text in asked if text not in numbers), None)
    few = ", ".join(list(numbers)[:3])
    require(unknown is None, "--nodes", "hold ids of the graph, one per line", repr(unknown), f"they are such as {few}")
    mask = torch.zeros(data.num_nodes, dtype=torch.bool)
    mask[[numbers[text] for text in asked]] = True
    return mask


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """How to decide, as `Detector.decide` takes it."""
    return {
        "fdr": arguments.fdr,
        "false_alarm": _level(arguments),
        "seed": arguments.seed if arguments.p_values == "randomized" else None,
        "tail": "extrapolated" if arguments.p_values == "extrapolated" else "exact",
        "storey": arguments.storey,
    }


def _level(arguments: argparse.Namespace) -> float | None:
    return None if arguments.fdr else arguments.false_alarm or FALSE_ALARM


def _set_figures(arguments: argparse.Namespace, sets: ClassSets | None) -> dict[str, Any]:
    """How many nodes are none of the known classes, and how much the sets of the others say."""
    if sets is None:
        return {}
    return {"sets": {"error": arguments.sets, "empty": int(sets.empty.sum()), "single": int((sets.sizes == 1).sum())}}


def _set_lines(figures: dict[str, Any]) -> list[str]:
    if "sets" not in figures:
        return []
    error, empty, sure = figures["sets"].values()
    return [f"sets at error {error:g}: {empty:,} empty ({empty / figures['nodes']:.1%}), {sure:,} of one class"]
