"""`gnnsafe monitor`: a graph scored, added to a history, and the stream of graphs judged."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

from gnnsafe.cli.options import (
    GRAPH,
    add_device_option,
    add_graph_options,
    given_files,
    given_graph,
    path,
    place,
    share,
)
from gnnsafe.cli.output import Answer, log, progress_bar
from gnnsafe.cli.parsing import examples
from gnnsafe.detector import load
from gnnsafe.devices import chosen_device
from gnnsafe.errors import require
from gnnsafe.files import replacing, writable
from gnnsafe.graph import moved
from gnnsafe.monitoring import History, Judged, Judgement, observe
from gnnsafe.monitoring.page import drift_document
from gnnsafe.monitoring.webhook import check_url, notified
from gnnsafe.report.document import as_html
from gnnsafe.report.plotting import altair

__all__ = ["configure"]

ALPHA = 0.01
PAGE = "drift.html"
CRON = (
    "15 3 * * * gnnsafe monitor /srv/detector /srv/graph --history /srv/history.db --quiet 2>> /var/log/gnnsafe.jsonl"
)
ALARM = 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `monitor`."""
    parser.description = (
        "Scores a graph by a detector, adds what it looks like to a history, and judges all graphs that came so far: "
        "have nodes stopped being like those that calibrated the detector? Of streams in which they have not, at most "
        "a share --alpha ever raises the alarm, however long they are and however often one looks. A node counts once: "
        "training and calibration nodes, and nodes whose features came before, are scored but not counted. Without "
        "DETECTOR and GRAPH it judges what is in the history."
    )
    parser.epilog = examples(
        "gnnsafe monitor detector/ monday/ --history history.db",
        "gnnsafe monitor --history history.db --report drift.html",
        "gnnsafe monitor detector/ graph/ --history history.db --webhook https://host/hook --quiet",
    ) + (
        f"Every night by cron:\n  {CRON}\n\n"
        "Exit code: 0 calm, 3 alarm, 2 a mistake. One line of JSON per run goes to standard error, with --quiet, too, "
        "for a log. An alarm "
        "stays raised until a new detector (or history) begins a new stream. The promise is about nodes that come in "
        "no particular order: those of one region after another, or of another graph than the one that calibrated the "
        "detector, are a change and raise the alarm. docs/monitor.md says more."
    )
    parser.add_argument("detector", metavar="DETECTOR", nargs="?", type=place, help="the folder of a detector")
    parser.add_argument("graph", metavar="GRAPH", nargs="?", type=place, help=GRAPH)
    parser.add_argument(
        "--history", metavar="PLACE", type=place, required=True, help="a file of SQLite's, made where there is none, "
        "or a database: postgresql://user@host/database",
    )  # fmt: skip
    parser.add_argument(
        "--alpha", metavar="SHARE", type=share, default=ALPHA, help=f"of calm streams at most this share ever raises "
        f"the alarm (default: {ALPHA})",
    )  # fmt: skip
    parser.add_argument(
        "--blocks", action="store_true", help="count the new nodes of this graph as one, by the mean of their bets, "
        "since they are neighbours or otherwise alike: slower, with fewer false alarms of nodes that come by region",
    )  # fmt: skip
    parser.add_argument(
        "--report", metavar="FILE", type=path, help="write the drift report, a page that needs no network"
    )
    parser.add_argument(
        "--webhook", metavar="URL", help="post the judgement as JSON to this URL in every run that ends in alarm; "
        "tried three times within 12 seconds, and a failure is a warning",
    )  # fmt: skip
    add_device_option(parser)
    add_graph_options(parser)
    parser.set_defaults(command=_monitor)


def _monitor(arguments: argparse.Namespace) -> Answer:
    require(arguments.detector is None or arguments.graph is not None, "GRAPH", "be given with DETECTOR", "none")
    report = _report(arguments)
    if arguments.webhook is not None:
        check_url("--webhook", arguments.webhook)
    _check_file(arguments)
    with History.open(arguments.history) as history:
        last = _appended(arguments, history) if arguments.detector else _newest(history)
        detector = last.entry.detector
        entries = [one for one in history.entries(detector) if one.number <= last.number]  # none that came meanwhile
        found = Judgement(entries, arguments.alpha, history.feature_names(detector))
    print(json.dumps(found.log_line()), file=sys.stderr, flush=True)
    if report is not None:
        with replacing(report) as part:
            part.write_text(as_html(drift_document(found)), encoding="utf-8")
    _tell(arguments.webhook, found)
    files = [] if report is None else [("Report", report)]
    return Answer(found.lines(), found.to_dict(), files, ALARM if found.alarm else 0)


def _appended(arguments: argparse.Namespace, history: History) -> Judged:
    """The graph read, scored and added."""
    detector = load(arguments.detector, device=arguments.device)
    detector.calibrated()
    with progress_bar() as progress:
        task = progress.add_task(f"Reading {arguments.graph}", total=3)
        data = given_graph(arguments, undirected=detector.undirected)
        progress.update(task, description="Scoring", completed=1)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*nodes are flagged")  # which is what the judgement is about
            observed = observe(detector, moved(data, chosen_device(arguments.device)), name=arguments.graph)
        progress.update(task, description="Judging", completed=2)
        return history.append(observed, block=arguments.blocks)


def _newest(history: History) -> Judged:
    last = history.entries(last=1)
    require(bool(last), "--history", "have an entry", "none", "gnnsafe monitor DETECTOR GRAPH --history … adds one")
    return last[0]


def _report(arguments: argparse.Namespace) -> Path | None:
    """Where the page goes; none of the files that are read, nor the history."""
    if arguments.report is None:
        return None
    altair()
    inputs = [*given_files(arguments), *([] if "://" in arguments.history else [Path(arguments.history)])]
    return writable("--report", arguments.report, file=PAGE, inputs=inputs)


def _check_file(arguments: argparse.Namespace) -> None:
    """Judging alone makes no new file, and no graph's file is taken for a history."""
    if "://" in arguments.history:
        return
    file = Path(arguments.history)
    require(not file.is_dir(), "--history", "be a file", f"the folder '{file}'")
    adds = arguments.detector is not None
    require(adds or file.exists(), "--history", "be a file that is there", f"'{file}'", "add a graph to it first")


def _tell(url: str | None, found: Judgement) -> None:
    if url is None or not found.alarm:
        return
    failed = notified(url, found.to_dict())
    if failed is not None:
        log.warning("the webhook was not reached: %s", failed)
