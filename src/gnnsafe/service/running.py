"""The service as a process: its log, its signals, its end."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI

from gnnsafe.display import shown
from gnnsafe.errors import InputError
from gnnsafe.service.refusal import RefusedError
from gnnsafe.service.state import Service

__all__ = ["JsonLines", "run"]

USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message", "taskName"}
IDLE = 30  # seconds that a connection may be open without a request
CONNECTIONS = 512

log = logging.getLogger("gnnsafe.service")


class JsonLines(logging.Formatter):
    """A record as a line of JSON: time, level, event, and what belongs to it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        more = {name: value for name, value in vars(record).items() if name not in USUAL}
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        told: dict[str, Any] = {"time": when, "level": record.levelname.lower(), "event": shown(record.getMessage())}
        if record.exc_info:
            more["trace"] = self.formatException(record.exc_info)
        return json.dumps({**told, **more}, ensure_ascii=True, default=str)


class _Server(uvicorn.Server):
    """uvicorn's, which leaves signals to us: it would end the process by the signal once all is done."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


def run(app: FastAPI, service: Service, *, host: str, port: int, level: int = logging.INFO) -> None:
    """Serve until SIGTERM or SIGINT: no request that was accepted is dropped. SIGHUP reads the detectors again.

    Raises:
        InputError: That address cannot be listened on.
    """
    listening = _listening(host, port)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, timeout_keep_alive=IDLE,
        limit_concurrency=CONNECTIONS, h11_max_incomplete_event_size=64 * 1024, lifespan="on", ws="none",
    )  # fmt: skip
    server = _Server(config)
    _log_to_stderr(level)
    service.announce()
    shown_host = f"[{host}]" if ":" in host else host
    log.info("listening", extra={"url": f"http://{shown_host}:{listening.getsockname()[1]}/"})

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.handle_exit, number, None)
        if hasattr(signal, "SIGHUP"):
            reloading = set[asyncio.Task[None]]()

            def again() -> None:
                task = loop.create_task(asyncio.to_thread(_reload, service))
                reloading.add(task)
                task.add_done_callback(reloading.discard)

            loop.add_signal_handler(signal.SIGHUP, again)
        await server.serve(sockets=[listening])

    asyncio.run(serve())
    log.info("stopped")


def _reload(service: Service) -> None:
    for model in service.models:
        with suppress(RefusedError):  # the log has it, and the others are read all the same
            service.reload(model.name)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle's delay on
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((host, port))
            opened.listen(2048)
        except OSError:
            opened.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"'--port' must be one to listen at (got {host}:{port}: {reason})") from error
    return opened


def _warned(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning of a library as an event; where in the code it was raised does not matter to who reads the log."""
    log.warning("warning", extra={"kind": category.__name__, "reason": str(message)})


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("gnnsafe").handlers[:] = []  # a command's own lines
    warnings.showwarning = _warned
    log.setLevel(level)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
