"""`gnnsafe report`: what the records of `gnnsafe bench` show, printed and as files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Hashable
from functools import partial
from pathlib import Path
from typing import Any, get_args

from gnnsafe.bench import store
from gnnsafe.bench.figures import FIGURES
from gnnsafe.bench.recipes import Protocol
from gnnsafe.cli.options import path
from gnnsafe.cli.output import Answer, Terminal, log
from gnnsafe.cli.parsing import examples
from gnnsafe.errors import InputError
from gnnsafe.report.document import Section, as_html, as_latex, as_markdown, print_document, print_section
from gnnsafe.report.plotting import altair
from gnnsafe.report.results import FIGURES_FOLDER, as_csv, order_figures, order_sections, study_document, write_report

__all__ = ["FOLDER", "audit_of", "configure", "printed", "selected"]

FOLDER = Path("results")
FORMATS = ("terminal", "markdown", "latex", "csv", "html")
AUDIT = "audit"  # in the records' folder: an audit of its own, both ways
MOST_FAILURES = 10  # told one by one


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `report`."""
    parser.description = (
        "Writes what the records in a folder show, without running anything: the order of methods with a "
        "critical-difference test, the paper's tables 1–8 with its figures beside ours, ROC curves, accuracy of the "
        "nodes kept, spread over seeds, the audit (of the records, or of those in their folder 'audit'), and those of "
        "the paper's figures that were run; as one page that works offline, as Markdown, LaTeX and CSV, and each chart "
        "as SVG, PNG and PDF. Prints the order of methods, or all of it in the --format asked for. Records not "
        "comparable with the last ones of the same method, protocol and backbone (another version, data or settings) "
        "are left out and counted; where methods are of several versions, the first lines say which."
    )
    parser.epilog = examples("gnnsafe report results/", "gnnsafe report results/ --format markdown")
    parser.epilog += "Exit code: 0, or 1 where a run among the records failed."
    parser.add_argument(
        "results", metavar="FOLDER", nargs="?", type=path, default=FOLDER, help=f"with records (default: {FOLDER})"
    )
    parser.add_argument("--protocol", choices=get_args(Protocol), help="its records alone (default: all)")
    parser.add_argument("--format", choices=FORMATS, help="print all of it so, and write no files")
    parser.add_argument(
        "--out", metavar="FOLDER", type=path, help="where to write the files (default: 'report' beside the records)"
    )
    parser.set_defaults(command=_report)


def _report(arguments: argparse.Namespace) -> Answer:
    folder: Path = arguments.results
    if arguments.format is not None and arguments.out is not None:
        raise InputError("'--out' must not be given with '--format' (got both), which prints and writes no files")
    altair()
    found, broken = store.read(folder)
    chosen = {record.key for record in found if arguments.protocol in (None, record.protocol)}
    records, code = selected(folder, chosen) if chosen else ([], 0)
    folders = {number: folder / f"figure-{number}" for number in FIGURES}
    drawn = folders if arguments.protocol in (None, "paper") else {}
    figures = {number: selected(path)[0] for number, path in drawn.items() if path.is_dir()}
    figures = {number: drawable for number, drawable in figures.items() if drawable}
    if not records and not figures:
        kind = f" of protocol {arguments.protocol}" if arguments.protocol else ""
        got = f"{broken} lines that are damaged or no records" if broken else "none"
        raise InputError(f"'{folder}' must hold records of 'gnnsafe bench'{kind} (got {got})")
    audited = [record for record in audit_of(folder) if arguments.protocol in (None, record.protocol)]
    document, order = study_document(records, figures, audited), {"order": order_figures(records)}
    if arguments.format == "terminal":
        return Answer([partial(print_document, document)], order, code=code)
    if arguments.format is not None:
        text = _text(arguments.format, document, records)
        return Answer([lambda console: console.file.write(text)], order, code=code)
    written = write_report(store.opened(arguments.out or folder / "report"), document, records)
    return Answer(printed(order_sections(records)) or [*document.lead], order, list(written.items()), code)


def _text(kind: str, document: Any, records: list[store.Record]) -> str:
    if kind == "csv":
        return as_csv(records)
    if kind == "html":
        return as_html(document)
    return (as_latex if kind == "latex" else as_markdown)(document, FIGURES_FOLDER)


def printed(sections: list[Section]) -> list[Callable[[Terminal], object]]:
    """Sections as words of an answer."""
    return [partial(print_section, section) for section in sections]


def audit_of(folder: Path) -> list[store.Record]:
    """The records of the audit that is kept in a folder of its own beside these; none where there is none."""
    return selected(folder / AUDIT)[0] if (folder / AUDIT).is_dir() else []


def selected(folder: Path, preferred: Collection[Hashable] | None = None) -> tuple[list[store.Record], int]:
    """The comparable records of a folder, telling of those that are not; 1 where a preferred run (any) failed."""
    records, broken = store.read(folder)
    keys = {record.key for record in records} if preferred is None else preferred
    protocols = {record.protocol for record in records if record.key in keys}
    selection = store.select([record for record in records if record.protocol in protocols], keys)
    failures = [record for record in selection.failures if record.key in keys]
    lines = [f"{count} records {reason} are left out" for reason, count in selection.left_out.items()]
    lines += [f"{broken} lines in {folder} are damaged or no records and are left out"] * bool(broken)
    lines += [f"failed: {record.run}: {record.error}" for record in failures[:MOST_FAILURES]]
    lines += [f"{len(failures)} runs failed; 'gnnsafe bench' tries them again"] * bool(failures)
    for line in lines:
        log.warning("%s", line)
    return selection.records, 1 if failures else 0
