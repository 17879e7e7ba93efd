"""The history of scored graphs: entries and the alarm's state, in SQLite or PostgreSQL (SQLAlchemy Core).

An append is one transaction: the entry and the state that it leads to are both there or neither is, also where the
process is killed. Writers wait for each other (SQLite: an immediate transaction; PostgreSQL: an advisory lock), so that
each continues the state of the one before. Scoring is done by then; the lock is held for milliseconds.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnsafe.display import shown
from gnnsafe.errors import HistoryError, MissingExtraError, require
from gnnsafe.monitoring.alarm import Alarm
from gnnsafe.monitoring.entry import Entry, Observation
from gnnsafe.monitoring.summaries import FeatureMoments

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["History", "Judged"]

WAIT = 60  # seconds for another writer
LOCK = 0x676E6E73616665  # "gnnsafe", PostgreSQL's advisory lock of all histories in a database


@dataclass(frozen=True)
class Judged:
    """An entry, and what the alarm made of the stream up to it."""

    number: int
    entry: Entry
    counted: int
    """The nodes that were new: not used for training or calibration, and never counted before."""
    total: int
    """All nodes that were counted up to here, with this detector."""
    log_value: float
    """log of the martingale, weighed over the scores that are watched."""
    log_peak: float
    """The highest that it was up to here."""
    loudest: str
    """The score that it was highest by."""

    def raised(self, alpha: float) -> bool:
        """Whether the alarm was raised by here: of calm streams at most a share `alpha` ever is."""
        require(0 < alpha < 1, "alpha", "lie in (0, 1)", alpha)
        return self.log_peak >= -math.log(alpha)


class History:
    """Scored graphs in the order in which they came: `with History.open("history.db") as history: …`.

    Streams of several detectors may share one; each has its own alarm, which begins again with a new detector.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._known = engine, dict[str, tuple[int, NDArray[np.uint32]]]()
        with self._transaction(write=True) as connection:
            _tables().create_all(connection)

    @classmethod
    def open(cls, place: str | os.PathLike[str]) -> History:
        """The history in a file of SQLite's, made where there is none, or in a database, by its URL.

        Args:
            place: A path, or a URL such as `postgresql://user@host/database`.

        Raises:
            HistoryError: The file is no history, or the database cannot be reached.
            MissingExtraError: SQLAlchemy, or PostgreSQL's driver, is not installed.
        """
        return cls(_engine(os.fspath(place)))

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections."""
        self._engine.dispose()

    def append(self, observed: Observation, *, block: bool = False) -> Judged:
        """Add an entry and judge the stream of its detector: all in one transaction.

        Args:
            observed: What `observe` made of a graph.
            block: Count its nodes as one, by the mean of their bets, where they are neighbours or otherwise alike;
                nodes that come in no particular order count one by one.

        Raises:
            HistoryError: The database cannot be reached or written; then nothing was added.
        """
        with self._transaction(write=True) as connection:
            alarm = _state(connection, observed.entry.detector) or observed.calm
            seen = self._seen(connection, observed.entry.detector)
            chosen = (~_among(observed.digests, seen)).nonzero()[0]
            after = alarm.after(observed.scores(chosen), block=block) if len(chosen) else alarm
            row = _row(observed, after, observed.digests[chosen])
            number = _insert(connection, row, after, observed.feature_names)
            return _judged({**row, "number": number})

    def entries(self, detector: str | None = None, *, last: int | None = None) -> list[Judged]:
        """All entries, or the last ones, of all detectors or of one; the oldest first."""
        import sqlalchemy as sa

        table = _tables().tables["gnnsafe_entries"]
        asked = sa.select(table).order_by(table.c.number.desc()).limit(last)
        if detector is not None:
            asked = asked.where(table.c.detector == detector)
        with self._transaction() as connection:
            rows = connection.execute(asked).mappings().all()
        return [_judged(dict(row)) for row in reversed(rows)]

    def first(self, detector: str, *, alpha: float | None = None) -> Judged | None:
        """A detector's first entry, or the one by which its alarm was raised; None where there is none."""
        import sqlalchemy as sa

        table = _tables().tables["gnnsafe_entries"]
        asked = sa.select(table).where(table.c.detector == detector).order_by(table.c.number).limit(1)
        if alpha is not None:
            asked = asked.where(table.c.log_peak >= -math.log(alpha))
        with self._transaction() as connection:
            row = connection.execute(asked).mappings().first()
        return None if row is None else _judged(dict(row))

    def alarm(self, detector: str) -> Alarm | None:
        """The state of a detector's alarm; None where nothing was ever appended."""
        with self._transaction() as connection:
            return _state(connection, detector)

    def feature_names(self, detector: str) -> tuple[str, ...] | None:
        """What the features are called that a detector knows; None where they have no names."""
        import sqlalchemy as sa

        table = _tables().tables["gnnsafe_alarms"]
        with self._transaction() as connection:
            found = connection.execute(sa.select(table.c.feature_names).where(table.c.detector == detector)).scalar()
        names = None if found is None else json.loads(found)
        return None if names is None else tuple(names)

    def _seen(self, connection: Connection, detector: str) -> NDArray[np.uint32]:
        """The hashes of all nodes that were counted with this detector, in ascending order.

        Entries are never changed, so only those that came since the last time are read.
        """
        import sqlalchemy as sa

        last, known = self._known.get(detector, (0, np.empty(0, dtype=np.uint32)))
        table = _tables().tables["gnnsafe_entries"]
        asked = sa.select(table.c.number, table.c.seen).where(table.c.detector == detector, table.c.number > last)
        rows = connection.execute(asked.where(table.c.counted > 0)).all()
        parts = [np.frombuffer(zlib.decompress(blob), dtype="<u4") for _, blob in rows]
        if parts:
            known = np.sort(np.concatenate([known, *parts]))
            self._known[detector] = max(number for number, _ in rows), known
        return known

    @contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[Connection]:
        import sqlalchemy as sa

        try:
            with self._engine.connect() as connection:
                if self._engine.dialect.name == "sqlite":
                    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
                elif write:
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{WAIT}s'")
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
                yield connection
                connection.commit()
        except sa.exc.SQLAlchemyError as error:
            where = self._engine.url.render_as_string(hide_password=True)
            reason = shown(str(getattr(error, "orig", None) or error).strip().split("\n")[0])
            raise HistoryError(
                f"'history' must be a database that can be read and written (got '{where}': {reason})"
            ) from error


def _engine(place: str) -> Engine:
    try:
        import sqlalchemy as sa
    except ImportError as error:
        raise MissingExtraError(f"a history needs {error.name}: pip install 'gnnsafe[monitor]'") from error
    try:
        url = sa.make_url(place) if "://" in place else sa.URL.create("sqlite", database=place)
    except (sa.exc.ArgumentError, ValueError) as error:  # such as a port that is no number
        raise HistoryError("'history' must be a path or a URL such as postgresql://user@host/database") from error
    if url.get_backend_name() == "sqlite":
        require(bool(url.database), "history", "be a file", "none")
        engine = sa.create_engine(url, connect_args={"timeout": WAIT})

        @sa.event.listens_for(engine, "connect")
        def _begin_ourselves(connection: Any, _: Any) -> None:
            connection.isolation_level = None  # sqlite3 would begin by itself, and not an immediate one

        return engine
    require(url.get_backend_name() == "postgresql", "history", "be a path or a URL of PostgreSQL's", url.drivername)
    url = url.set(drivername="postgresql+psycopg")
    try:
        return sa.create_engine(
            url, pool_pre_ping=True, connect_args={"connect_timeout": 10, "tcp_user_timeout": 1000 * WAIT}
        )
    except ImportError as error:
        raise MissingExtraError(f"PostgreSQL needs {error.name}: pip install 'gnnsafe[monitor]'") from error


def _tables() -> Any:
    """What is stored; SQLAlchemy is imported only where a history is opened."""
    global _METADATA
    if _METADATA is None:
        import sqlalchemy as sa

        _METADATA = sa.MetaData()
        number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
        sa.Table(
            "gnnsafe_entries", _METADATA,
            sa.Column("number", number, primary_key=True, autoincrement=True),
            sa.Column("time", sa.String(40), nullable=False),
            sa.Column("detector", sa.String(32), nullable=False, index=True),
            sa.Column("graph", sa.String(32), nullable=False),
            sa.Column("name", sa.Text, nullable=False),
            sa.Column("nodes", number, nullable=False),
            sa.Column("edges", number, nullable=False),
            sa.Column("flagged", number, nullable=False),
            sa.Column("counted", number, nullable=False),
            sa.Column("total", number, nullable=False),
            sa.Column("log_value", sa.Double, nullable=False),
            sa.Column("log_peak", sa.Double, nullable=False),
            sa.Column("loudest", sa.Text, nullable=False),
            sa.Column("summary", sa.Text, nullable=False),  # the entry as JSON
            sa.Column("features", sa.LargeBinary, nullable=False),  # float32 means, then deviations, compressed
            sa.Column("seen", sa.LargeBinary, nullable=False),  # uint32 hashes of the nodes counted here, compressed
        )  # fmt: skip
        sa.Table(
            "gnnsafe_alarms", _METADATA,
            sa.Column("detector", sa.String(32), primary_key=True),
            sa.Column("state", sa.LargeBinary, nullable=False),  # JSON, compressed
            sa.Column("feature_names", sa.Text, nullable=False),  # JSON: a list, or null
        )  # fmt: skip
    return _METADATA


_METADATA: Any = None


def _state(connection: Connection, detector: str) -> Alarm | None:
    import sqlalchemy as sa

    table = _tables().tables["gnnsafe_alarms"]
    found = connection.execute(sa.select(table.c.state).where(table.c.detector == detector)).scalar()
    return None if found is None else Alarm.from_dict(json.loads(zlib.decompress(found)))


def _among(digests: NDArray[np.uint32], known: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which of them are known, in ascending order.

    >>> _among(np.array([7, 2], dtype=np.uint32), np.array([2, 5], dtype=np.uint32)).tolist()
    [False, True]
    """
    places = np.searchsorted(known, digests).clip(max=max(len(known) - 1, 0))
    return known[places] == digests if len(known) else np.zeros(len(digests), dtype=bool)


def _row(observed: Observation, alarm: Alarm, seen: NDArray[np.uint32]) -> dict[str, Any]:
    entry = observed.entry
    features = np.concatenate([entry.features.mean, entry.features.deviation]).astype("<f4")
    same = ("time", "detector", "graph", "name", "nodes", "edges", "flagged")
    return {
        **{name: getattr(entry, name) for name in same},
        "counted": len(seen), "total": alarm.nodes, "log_value": alarm.log_value, "log_peak": alarm.log_peak,
        "loudest": alarm.loudest.name, "summary": json.dumps(entry.to_dict()),
        "features": zlib.compress(features.tobytes()), "seen": zlib.compress(np.sort(seen).astype("<u4").tobytes()),
    }  # fmt: skip


def _insert(connection: Connection, row: dict[str, Any], alarm: Alarm, names: tuple[str, ...] | None) -> int:
    import sqlalchemy as sa

    entries, alarms = (_tables().tables[name] for name in ("gnnsafe_entries", "gnnsafe_alarms"))
    (number,) = connection.execute(sa.insert(entries).values(row)).inserted_primary_key or (0,)
    state = zlib.compress(json.dumps(alarm.to_dict()).encode())
    connection.execute(sa.delete(alarms).where(alarms.c.detector == row["detector"]))
    connection.execute(sa.insert(alarms).values(detector=row["detector"], state=state, feature_names=json.dumps(names)))
    return int(number)


def _judged(row: dict[str, Any]) -> Judged:
    values = np.frombuffer(zlib.decompress(row["features"]), dtype="<f4").astype(np.float32)
    entry = Entry.from_dict(json.loads(row["summary"]), FeatureMoments(*np.split(values, 2)))
    kept = ("number", "counted", "total", "log_value", "log_peak", "loudest")
    return Judged(entry=entry, **{name: row[name] for name in kept})
