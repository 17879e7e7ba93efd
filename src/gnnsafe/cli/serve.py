"""`gnnsafe serve`: detectors over HTTP, with a page."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

from gnnsafe.cli.options import GRAPH, add_graph_options, given_graph, path, place, positive, share
from gnnsafe.cli.output import progress_bar
from gnnsafe.cli.parsing import examples
from gnnsafe.errors import InputError, require

__all__ = ["configure"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
FEWEST = 16  # letters of a token


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command `serve`."""
    parser.description = (
        "Serves detectors over HTTP: the Open Inference Protocol under /v2, graphs under /v1, a page at /, OpenAPI at "
        "/docs, Prometheus at /metrics. With --graph it keeps a graph, takes changes of it and scores the nodes that "
        "these affect; what it has acknowledged is in a journal beside the graph, and is there after any crash. It "
        "listens on this machine alone by default; elsewhere a token is required. SIGTERM finishes what was accepted; "
        "SIGHUP reads the detectors again without dropping a request."
    )
    parser.epilog = examples(
        "gnnsafe serve detector/ --graph graph/ --history history.db", "gnnsafe serve papers=detector/ other/"
    )
    parser.epilog += "Then see http://127.0.0.1:8000/. Its log, a line of JSON per event, goes to standard error."
    parser.add_argument(
        "detectors", metavar="DETECTOR", nargs="+", type=place, help="the folder of a detector, as NAME=FOLDER or by "
        "the folder's name; the first is the one that reads the kept graph",
    )  # fmt: skip
    parser.add_argument("--graph", metavar="GRAPH", type=place, help=f"the graph to keep: {GRAPH}")
    parser.add_argument(
        "--journal", metavar="FILE", type=path, help="where changes of the graph are kept (default: "
        "changes.journal in the graph's folder)",
    )  # fmt: skip
    parser.add_argument(
        "--history", metavar="FILE|URL", type=place, help="append what is scored to this history of 'gnnsafe monitor': "
        "an SQLite file, or postgresql://…",
    )  # fmt: skip
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", metavar="N", type=_port, default=8000, help="default: 8000; 0: any that is free")
    parser.add_argument(
        "--token-file", metavar="FILE", type=path, help=f"a file with the token that requests must bring, at least "
        f"{FEWEST} letters; required beyond loopback",
    )  # fmt: skip
    parser.add_argument(
        "--false-alarm", metavar="SHARE", type=share, default=0.05, help="of ID nodes at most this share is flagged "
        "(default: 0.05)",
    )  # fmt: skip
    for name, (text, usual) in LIMITS.items():
        parser.add_argument(
            f"--max-{name}", metavar="N", type=positive, default=usual, help=f"{text} (default: {usual})"
        )
    add_graph_options(parser)
    parser.set_defaults(command=_serve)


LIMITS = {
    "body": ("MiB of a request", 64),
    "nodes": ("nodes of a graph", 2_000_000),
    "edges": ("edges of a graph", 20_000_000),
    "seconds": ("seconds for a request", 60),
    "workers": ("requests that are scored at once", 2),
    "waiting": ("requests that wait for a worker", 64),
}


def _port(text: str) -> int:
    if not text.isdecimal() or not int(text) < 2**16:
        raise argparse.ArgumentTypeError(f"must be a port, 0 to 65535 (got {text!r})")
    return int(text)


def _serve(arguments: argparse.Namespace) -> None:
    from gnnsafe.service import Limits, Service, create_app
    from gnnsafe.service.models import ServedModel
    from gnnsafe.service.running import run

    token = _token(arguments)
    asked = {name: getattr(arguments, f"max_{name}") for name in LIMITS}
    limits = Limits(**{**asked, "body": asked["body"] * 2**20})
    with progress_bar() as progress:
        task = progress.add_task("Loading", total=3)
        models = {name: ServedModel.loaded(name, folder) for name, folder in _folders(arguments.detectors).items()}
        progress.update(task, description="Reading the graph", completed=1)
        graph = None if arguments.graph is None else given_graph(arguments)
        progress.update(task, description="Scoring", completed=2)
        service = Service(
            models,
            graph=graph,
            journal=None if graph is None else arguments.journal or _journal(Path(arguments.graph)),
            history=_history(arguments.history),
            limits=limits,
            false_alarm=arguments.false_alarm,
        )
    app = create_app(service, token=token)
    level = logging.WARNING if arguments.quiet else logging.DEBUG if arguments.verbose else logging.INFO
    run(app, service, host=arguments.host, port=arguments.port, level=level)


def _folders(given: list[str]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for text in given:
        name, is_named, folder = text.partition("=")
        folder = folder if is_named and not Path(text).is_dir() else text
        name = name if folder != text else Path(text).absolute().name
        usable = bool(name) and all(letter.isalnum() or letter in "-_." for letter in name)
        rule = "have a name of letters, digits, '-', '_' and '.'"
        require(usable, "DETECTOR", rule, f"'{name}'", "give it one, as NAME=FOLDER")
        require(name not in named, "DETECTOR", "have names of their own", f"'{name}' twice", "name them, NAME=FOLDER")
        named[name] = Path(folder)
    return named


def _journal(graph: Path) -> Path:
    return graph / "changes.journal" if graph.is_dir() else graph.with_name(f"{graph.name}.changes.journal")


def _history(place: str | None) -> Any:
    if place is None:
        return None
    from gnnsafe.monitoring import History

    return History.open(place)


def _token(arguments: argparse.Namespace) -> str | None:
    if arguments.token_file is None:
        remedy = "give --token-file FILE, such as one that 'openssl rand -hex 32' wrote"
        require(arguments.host in LOOPBACK, "--host", "be on this machine without a token", arguments.host, remedy)
        return None
    try:
        token = str(arguments.token_file.read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'--token-file' must be a text file (got '{arguments.token_file}': {error})") from error
    rule = f"hold at least {FEWEST} letters of ASCII without spaces"
    fits = len(token) >= FEWEST and token.isascii() and token.isprintable() and " " not in token
    require(fits, "--token-file", rule, f"{len(token)} letters")
    return token
