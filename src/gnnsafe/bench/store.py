"""The store: a folder of records, a file for each cell run, written whole and never changed."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from gnnsafe.bench.curves import Curves
from gnnsafe.bench.paper import LEARNING_RATE
from gnnsafe.bench.recipes import Protocol, SelectedBy
from gnnsafe.datasets import DATASETS
from gnnsafe.errors import InputError, require
from gnnsafe.files import replacing
from gnnsafe.metrics import Detection
from gnnsafe.typed import Typed

__all__ = ["Record", "Selection", "opened", "read", "select", "write"]

SECONDS = ("train", "epoch", "forward", "score")  # that a run takes


@dataclass(frozen=True)
class Record:
    """One recipe on one OOD graph of one cell: all that explains its figures, or why there are none (`error`)."""

    dataset: str
    shift: str
    seed: int
    backbone: str
    protocol: Protocol
    epochs: int
    method: str
    """The recipe's name, as tables give it; what it stands for follows."""
    method_repr: str
    objective_repr: str
    exposure: bool
    data: str
    """Fingerprint of the data set's tensors, before any shift is drawn."""
    versions: dict[str, str]
    created: str
    code: str = ""
    """A hash of the file that the method is defined in, where that is not gnnsafe's own."""
    lr: float = LEARNING_RATE
    chosen: dict[str, str] = field(default_factory=dict)
    """How each hyper-parameter was chosen."""
    selection: SelectedBy = "validation"
    """What chose the epoch and the hyper-parameters."""
    epoch: int = -1
    """Whose weights were scored, counted from 0; -1 where it is not known."""
    source: str = ""
    model: str = ""
    ood: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    accuracy: float = 0.0
    curves: Curves | None = None
    """Of the scores; none where the run failed."""
    within_degrees: float | None = None
    """AUROC among nodes of equal in- and out-degree; None where there are no two such, one ID and one OOD."""
    val_loss: float = 0.0
    """The lowest ID validation loss: that of the epoch whose weights were scored."""
    seconds: dict[str, float] = field(default_factory=dict)
    memory: float = 0.0
    """Peak resident memory of the process, in MiB: since the cell began or, but on Linux, since the process did."""
    error: str = ""

    @property
    def key(self) -> tuple[Hashable, ...]:
        """All that decides the figures: a run is finished where a record has its key."""
        cell = (self.dataset, self.shift, self.seed, self.backbone, self.protocol, self.epochs, self.data)
        versions = (self.versions["gnnsafe"], self.versions["torch"])
        return (*cell, self.selection, self.method, *self.settings, *versions)

    @property
    def settings(self) -> tuple[Hashable, ...]:
        """What its name stands for, and why."""
        chosen = tuple(sorted(self.chosen.items()))
        files = (self.versions.get("method", ""), self.code)
        return (self.method_repr, self.objective_repr, *files, self.lr, chosen)

    @property
    def detection(self) -> Detection:
        """The metrics by name."""
        return Detection(**self.metrics)

    @property
    def run(self) -> str:
        """Which run this is, for a message."""
        return f"{self.dataset} {self.shift}, {self.backbone}, seed {self.seed}, {self.method}"


def opened(folder: Path) -> Path:
    """The folder, made if need be; an `InputError` now where writing to it would fail later."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise InputError(
            f"'--out' must be a folder that can be written to (got '{folder}': {error.strerror})"
        ) from error


def write(folder: Path, records: Iterable[Record]) -> None:
    """A new file with these records of one cell, whole or not at all: a kill costs the cell under way, no other."""
    lines = [json.dumps(asdict(record), ensure_ascii=False) for record in records]
    cell = json.loads(lines[0])
    name = "-".join(str(cell[part]) for part in ("dataset", "shift", "backbone", "seed"))
    content = ("\n".join(lines) + "\n").encode(errors="backslashreplace")
    with replacing(folder / f"{name}-{xxhash.xxh3_64_hexdigest(content)}.jsonl") as part:
        part.write_bytes(content)


def read(folder: Path) -> tuple[list[Record], int]:
    """All records of the folder, oldest first, and the number of lines that are none.

    Those are lines of a file whose content is not what its name says (it was changed since it was written), and lines
    that do not say all that a record says.
    """
    records: list[Record] = []
    broken = 0
    for path in sorted(folder.glob("*.jsonl")):
        content = path.read_bytes()
        lines = content.decode(errors="replace").splitlines()
        if path.stem.rpartition("-")[2] != xxhash.xxh3_64_hexdigest(content):
            broken += max(len(lines), 1)
            continue
        for line in lines:
            try:
                records.append(_record(json.loads(line)))
            except (ValueError, RecursionError):  # no JSON, or an InputError
                broken += 1
    return sorted(records, key=lambda record: record.created), broken


def _record(fields: Any) -> Record:
    record: Record = Typed().value(Record, fields, "record")
    require({"gnnsafe", "torch"} <= record.versions.keys(), "versions", "name gnnsafe and torch", record.versions)
    if not record.error:
        shares = {**record.metrics, "accuracy": record.accuracy}
        require(record.metrics.keys() == {*Detection._fields}, "metrics", "be those of a run", record.metrics)
        require(all(0 <= value <= 1 for value in shares.values()), "metrics", "lie in [0, 1]", shares)
        require({*SECONDS} <= record.seconds.keys(), "seconds", f"name {', '.join(SECONDS)}", record.seconds)
        require(record.curves is not None, "curves", "be there", "none")
    return record


class Selection(NamedTuple):
    """Records that may stand in tables, one for each protocol; runs that failed and were not made good; the others."""

    records: list[Record]
    failures: list[Record]
    left_out: Counter[str]


def _row(record: Record) -> tuple[Hashable, ...]:
    """The row of an order of methods that it counts in: of one code, which may be another than the other rows'."""
    return record.protocol, record.selection, record.backbone, record.method


# Within each group (of all records, of a data set's, …) only records with one and the same value are comparable.
CRITERIA: list[tuple[Callable[[Record], Hashable], Callable[[Record], Hashable], str]] = [
    (_row, lambda r: r.versions["gnnsafe"], "of gnnsafe {0.versions[gnnsafe]}"),
    (lambda r: None, lambda r: r.versions["torch"], "of torch {0.versions[torch]}"),
    (lambda r: None, lambda r: r.epochs, "of {0.epochs} epochs"),
    (lambda r: r.dataset, lambda r: r.data, "of other data for {0.dataset}"),
    (_row, lambda r: r.versions.get("method", ""), "of other code for {0.method}"),
    (lambda r: (*_row(r), r.dataset, r.shift), lambda r: r.settings, "of other settings for {0.method}"),
]


def select(records: Iterable[Record], preferred: Collection[Hashable] = ()) -> Selection:
    """The records comparable with the last one, or with the last that has a preferred key; the rest is counted."""
    kept = sorted(records, key=lambda record: record.key in preferred)
    left_out: Counter[str] = Counter()
    for group, value, reason in CRITERIA:
        wanted = {group(record): value(record) for record in kept}  # the last one's
        left_out.update(reason.format(record) for record in kept if value(record) != wanted[group(record)])
        kept = [record for record in kept if value(record) == wanted[group(record)]]
    done = {(record.key, record.ood): record for record in kept if not record.error}
    finished = {key for key, _ in done}
    failures = {record.key: record for record in kept if record.error and record.key not in finished}
    return Selection(sorted(done.values(), key=_table_order), list(failures.values()), left_out)


def _table_order(record: Record) -> tuple[int | str, ...]:
    """In a table: whatever order the cells were finished in, the catalogue's; stable within a cell."""
    datasets = list(DATASETS)
    place, shift = len(datasets), 0
    if record.dataset in datasets:
        shifts = list(DATASETS[record.dataset].shifts)
        place = datasets.index(record.dataset)
        shift = shifts.index(record.shift) if record.shift in shifts else len(shifts)
    return place, shift, record.protocol, record.backbone, record.seed
