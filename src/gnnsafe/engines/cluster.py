"""What Spark needs around it: Java, a master that answers, a session, and places that every machine sees."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from gnnsafe.engines.sources import is_remote
from gnnsafe.engines.workspace import PREFIX, published, workspace
from gnnsafe.errors import InputError, MissingExtraError, require

__all__ = ["Storage", "beside", "check_java", "check_master", "pandas_unmentioned", "started"]

ANSWERS_IN = 5.0  # seconds
STALE = 24 * 3600.0  # seconds after which what is left at an address belongs to no run
BROADCAST = "128m"  # tables up to this size are sent to every machine: no key, however frequent, is shuffled then

QUIET = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
LOCAL = {"spark.driver.host": "127.0.0.1"}  # of one machine


def check_java() -> None:
    """Spark runs on Java."""
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None
    if not found:
        where = f"JAVA_HOME={home}" if home else "no 'java' on the PATH"
        raise MissingExtraError(f"the engine spark needs Java 17 or later ({where}): apt install openjdk-17-jre")


def check_master(master: str | None) -> None:
    """A master that is named answers: Spark itself would try for a minute."""
    hosts = re.fullmatch(r"spark://(.+)", master or "")
    if hosts is None:
        local = master is None or re.fullmatch(r"local(-cluster)?(\[.*\])?|yarn|k8s://.+", master)
        require(bool(local), "master", "be local[N], spark://host:port, yarn or k8s://…", repr(master))
        return
    for address in hosts[1].split(","):
        host, _, port = address.rpartition(":")
        require(port.isdecimal() and bool(host), "master", "be spark://host:port", repr(master))
        try:
            socket.create_connection((host, int(port)), ANSWERS_IN).close()
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"'master' must be one that answers (got '{master}': {reason}); is it running?") from error


@contextmanager
def pandas_unmentioned() -> Iterator[None]:
    """PySpark warns of pandas 3 whatever it does; here it gets Arrow alone, and an error is to be the only line."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


@contextmanager
def started(master: str | None, conf: Mapping[str, str], temp: str) -> Iterator[Any]:
    """The session of spark-submit, or a new one, which is stopped in the end; on this machine it shuffles in `temp`."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession() is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    local = not running and (master or "local").startswith("local")
    with ExitStack() as stack:
        settings: dict[str, Any] = {
            "spark.app.name": "gnnsafe",
            "spark.sql.autoBroadcastJoinThreshold": BROADCAST,
            "spark.ui.showConsoleProgress": "false",
            **({} if running else {"spark.master": master or "local[*]", **QUIET}),
            **(LOCAL if local else {}),
        }
        if local:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers are of this environment
        if local and not is_remote(temp):
            settings["spark.local.dir"] = str(stack.enter_context(workspace(Path(temp).absolute())))
        settings |= conf
        root = logging.getLogger()
        root.addFilter(_not_py4j)
        stack.callback(root.removeFilter, _not_py4j)
        session = _session(master, settings, running=running)
        if not running:
            java = getattr(session.sparkContext._jvm.org.apache.spark.util, "Utils$")
            stack.callback(getattr(java, "MODULE$").clearLocalRootDirs)  # else the next session would make it again
            stack.callback(session.stop)
        yield session


def _session(master: str | None, settings: Mapping[str, str], *, running: bool) -> Any:
    """The one that is running, or a new one."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryFile() as log:
        try:
            if not running:
                _start_java(settings, log if settings["spark.log.level"] == QUIET["spark.log.level"] else None)
            return SparkSession.builder.config(map={**settings}).getOrCreate()
        except Exception as error:  # py4j's and Spark's own have no root of their own
            log.seek(0)
            told = [*str(error).strip().splitlines()[-1:], *log.read().decode(errors="replace").splitlines()]
            reason = " ".join(line for line in told if not line.startswith("WARNING"))[:300] or type(error).__name__
            raise InputError(f"'master' must be one that Spark starts on (got '{master}': {reason})") from error


def _not_py4j(record: logging.LogRecord) -> bool:
    """What py4j logs with a traceback, on Ctrl-C for one, it also raises."""
    return "py4j" not in Path(record.pathname).parts


def _start_java(settings: Mapping[str, str], log: IO[bytes] | None) -> None:
    """What Java and the workers say goes to a file, if there is one, so that an error of ours is the only line."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:  # else it runs since a session before
        conf = SparkConf(loadDefaults=False).setAll([*settings.items()])
        with _interrupted_after():
            gateway = launch_gateway(conf, popen_kwargs={"stderr": log})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)


@contextmanager
def _interrupted_after() -> Iterator[None]:
    """Ctrl-C counts when the block ends: in it, a Java that has no Python yet would stay for good."""
    if threading.current_thread() is not threading.main_thread():
        yield  # which alone has signals
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def beside(session: Any) -> Any:
    """A session of the same application and settings, with names of its own: none of the user's views is replaced."""
    other = session.newSession()
    for name, value in session.conf.getAll.items():
        if session.conf.isModifiable(name):
            other.conf.set(name, value)
    other.conf.set("spark.sql.session.timeZone", "UTC")
    return other


class Storage:
    """Where tables are temporarily, and how outputs appear: on a file system, or at an address of Hadoop's."""

    def __init__(self, session: Any, temp: str) -> None:
        self._session, self._temp, self._stack = session, temp, ExitStack()

    def __enter__(self) -> Storage:
        if is_remote(self._temp):
            self._root = self._new(self._temp.rstrip("/"))
            self._stack.callback(self._delete, self._root)
        else:
            self._root = self._stack.enter_context(workspace(Path(self._temp).absolute())).as_uri()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def path(self, name: str) -> str:
        """The address of a table."""
        return f"{self._root}/{name}"

    def remove(self, name: str) -> None:
        """A table that is no longer read."""
        self._delete(self.path(name))

    @contextmanager
    def published(self, out: str) -> Iterator[str]:
        """An address to write to that becomes `out` when the block ends well."""
        if not is_remote(out):
            with published(Path(out)) as folder:
                yield folder.as_uri()
            return
        self.check_absent(out)
        system, target = self._system(out)
        part = self._new(out.rstrip("/").rpartition("/")[0])
        try:
            yield part
            require(system.rename(self._system(part)[1], target), "out", "be a place that can be written", f"'{out}'")
        finally:
            self._delete(part)

    def check_absent(self, out: str) -> None:
        """Nothing is at an address that would be written over."""
        system, target = self._system(out)
        require(not system.exists(target), "out", "be a new folder", f"'{out}'", "remove it or name another")

    def _system(self, address: str) -> tuple[Any, Any]:
        context = self._session.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(address)
        return path.getFileSystem(context._jsc.hadoopConfiguration()), path

    def _delete(self, address: str) -> None:
        system, path = self._system(address)
        system.delete(path, True)

    def _new(self, parent: str) -> str:
        """An address at which nothing is yet; what runs before have left there is removed first."""
        system, folder = self._system(f"{parent}/")
        for status in system.listStatus(folder) if system.exists(folder) else ():
            name = status.getPath().getName()
            if name.startswith(PREFIX) and time.time() - status.getModificationTime() / 1000 > STALE:
                system.delete(status.getPath(), True)
        return f"{parent}/{PREFIX}{secrets.token_hex(8)}"
