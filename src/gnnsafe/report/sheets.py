"""The paper's tables 1–8, with our figures beside its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median, stdev

from scipy.stats import t as student

from gnnsafe.bench import paper
from gnnsafe.bench.store import Record
from gnnsafe.bench.summary import summaries
from gnnsafe.report.footnotes import Notes, comparable, figure_note, method_note
from gnnsafe.report.grid import Grid, GridEntry

__all__ = ["Block", "Comparison", "Sheet", "SheetColumn", "sheets"]

METRICS = {"AUROC": "auroc", "AUPR": "aupr_in", "FPR95": "fpr95", "ID_ACC": "accuracy"}
LOWER = ("FPR95", "train_s_per_epoch", "inference_s")
TIMED = {"train_s_per_epoch": "training, ms per epoch", "inference_s": "inference, ms"}
NONE = "–"


@dataclass(frozen=True)
class SheetColumn:
    """What a column shows: a metric of a data set under a shift, "domain:ES" being one OOD graph of several."""

    label: str
    dataset: str
    shift: str
    metric: str

    @property
    def lower(self) -> bool:
        """Whether lower is better."""
        return self.metric in LOWER


@dataclass(frozen=True)
class Comparison:
    """One method in one column: ours over the seeds, the paper's, and how they compare."""

    values: tuple[float, ...]
    """A figure per seed."""
    paper: float | None
    note: str = ""
    place: int = 0
    """1 is best of its group, 2 second best."""
    comparable: bool = True
    """Times of another machine are not."""

    @property
    def mean(self) -> float | None:
        """Of the seeds."""
        return mean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Standard deviation of the seeds; none from one."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def beyond(self) -> str:
        """▲ or ▼: ours lies above or below the paper's by more than one more seed would, 95 times in 100."""
        if self.mean is None or self.spread is None or self.paper is None or not self.comparable:
            return ""
        seeds = len(self.values)
        reach = student.ppf(0.975, seeds - 1) * self.spread * (1 + 1 / seeds) ** 0.5
        difference = self.mean - self.paper
        return "" if abs(difference) <= reach else "▲" if difference > 0 else "▼"


@dataclass(frozen=True)
class Block:
    """A part of a table with columns of its own, and a row of cells per method."""

    title: str
    columns: Sequence[SheetColumn]
    rows: dict[str, list[Comparison]]


@dataclass(frozen=True)
class Sheet:
    """One table: its blocks, and which of its methods learn from exposure."""

    number: int
    title: str
    blocks: Sequence[Block]
    exposure: dict[str, bool]

    @property
    def name(self) -> str:
        """As the paper counts."""
        return f"Table {self.number}: {self.title}"

    def grids(self, notes: Notes) -> list[Grid]:
        """A grid per block: ours and the paper's side by side; what there is to say of the paper's goes to `notes`."""
        return [self._grid(block, notes) for block in self.blocks]

    def _grid(self, block: Block, notes: Notes) -> Grid:
        most = max(len(cell.values) for row in block.rows.values() for cell in row)
        head = ["method", *(text for column in block.columns for text in (f"{column.label}{_arrow(column)}", "paper"))]
        rows = []
        for method, cells in block.rows.items():
            row = [GridEntry(method, notes=notes.number(method_note(method, self.number)))]
            for column, cell in zip(block.columns, cells, strict=True):
                row += [
                    _ours(column, cell, most),
                    GridEntry(_published(column, cell.paper), "quiet", notes.number(cell.note)),
                ]
            rows.append(row)
        groups = [self.exposure[method] for method in block.rows]
        breaks = [number for number in range(1, len(groups)) if groups[number] != groups[number - 1]]
        return Grid(f"{block.title}, {most} seed{'s' if most > 1 else ''}", head, rows, breaks=breaks)


def _arrow(column: SheetColumn) -> str:
    return "" if column.metric in TIMED else " ↓" if column.lower else " ↑"


def _ours(column: SheetColumn, cell: Comparison, seeds: int) -> GridEntry:
    if cell.mean is None:
        return GridEntry(NONE)
    spread = "" if cell.spread is None else f"±{_figure(column, cell.spread)}"
    mark = {1: "best", 2: "second"}.get(cell.place, "")
    fewer = "" if len(cell.values) == seeds else f" of {len(cell.values)}"
    return GridEntry(f"{_figure(column, cell.mean)}{spread}{cell.beyond}{fewer}", mark)  # type: ignore[arg-type]


def _published(column: SheetColumn, value: float | None) -> str:
    """With the decimals that the paper has."""
    return _figure(column, value) if value is None or column.metric in TIMED else f"{value:.2f}"


def _figure(column: SheetColumn, value: float | None) -> str:
    if value is None:
        return NONE
    if column.metric not in TIMED:
        return f"{value:.1f}"
    milliseconds = 1000 * value
    return f"{milliseconds:.0f}" if milliseconds >= 99.5 else f"{milliseconds:.2g}"


def sheets(records: Sequence[Record]) -> list[Sheet]:
    """The tables of which there is at least one record, with the blocks of which there is one.

    A data set that is a substitute for one of the paper's fills its columns, named as such, where the latter is not.
    """
    known = {record.dataset for record in records}
    records = [record for record in records if paper.SUBSTITUTES.get(record.dataset) not in known]
    methods = paper.PAPER_METHODS | {record.method: record.exposure for record in records}
    exposure = dict(sorted(methods.items(), key=lambda item: item[1]))  # stable: in the paper's order, then ours
    tables = []
    for number, title, parts in _layout():
        blocks = [_block(number, part, columns, exposure, records) for part, columns in parts]
        blocks = [block for block in blocks if any(cell.values for row in block.rows.values() for cell in row)]
        if blocks:
            tables.append(Sheet(number, title, blocks, exposure))
    return tables


def _layout() -> Iterable[tuple[int, str, list[tuple[str, list[SheetColumn]]]]]:
    named, letters = paper.PAPER_NAMES, {"structure": "S", "feature": "F", "label": "L"}
    single = [dataset for dataset in named if dataset not in ("twitch", "arxiv")]

    def metrics(dataset: str, shift: str, names: Iterable[str] = METRICS) -> list[SheetColumn]:
        return [SheetColumn(name.replace("_", " "), dataset, shift, name) for name in names]

    def times(metric: str) -> list[SheetColumn]:
        return [SheetColumn(name, dataset, "", metric) for dataset, name in named.items()]

    own = {"twitch": "domain", "arxiv": "time"}
    yield 1, "Twitch and Arxiv", [(named[dataset], metrics(dataset, shift)) for dataset, shift in own.items()]
    yield 2, "AUROC on Cora, Amazon and Coauthor", [
        (named[dataset], [SheetColumn(letters[shift], dataset, shift, "AUROC") for shift in paper.PAPER_SHIFTS])
        for dataset in single
    ]  # fmt: skip
    for number, dataset, graphs in ((3, "twitch", ("ES", "FR", "RU")), (4, "arxiv", ("2018", "2019", "2020"))):
        parts = [(graph, metrics(dataset, f"{own[dataset]}:{graph}", [*METRICS][:3])) for graph in graphs]
        yield number, f"{named[dataset]}, each OOD graph", parts
    for number, dataset in enumerate(single, 5):
        yield number, named[dataset], [(shift, metrics(dataset, shift)) for shift in paper.PAPER_SHIFTS]
    yield 8, "time", [(text, times(metric)) for metric, text in TIMED.items()]


def _block(
    number: int, title: str, columns: list[SheetColumn], exposure: dict[str, bool], records: Sequence[Record]
) -> Block:
    known = [column for column in columns if any(_matches(column, record) for record in records)]
    figures = [_by_method(column, records) for column in known]
    rows = {
        method: [
            Comparison(
                tuple(values.get(method, ())),
                paper.published(column.dataset, column.shift, method, column.metric, table=number),
                figure_note(number, column.dataset, column.shift, method, column.metric),
                comparable=column.metric not in TIMED and comparable(column.dataset, column.metric),
            )
            for column, values in zip(known, figures, strict=True)
        ]
        for method in exposure
    }
    for index, column in enumerate(known):
        for group in (False, True):
            _mark_best([row for method, row in rows.items() if exposure[method] is group], index, column)
    substitutes = sorted({r.dataset for r in records if r.dataset in paper.SUBSTITUTES and _of_any(r, known)})
    return Block(title + "".join(f" ({name}, a substitute)" for name in substitutes), known, rows)


def _of_any(record: Record, columns: Iterable[SheetColumn]) -> bool:
    return any(_matches(column, record) for column in columns)


def _matches(column: SheetColumn, record: Record) -> bool:
    shift, _, graph = column.shift.partition(":")
    return _stands_for(record) == column.dataset and shift in ("", record.shift) and graph in ("", record.ood)


def _stands_for(record: Record) -> str:
    """Its data set, or the paper's for which it is a substitute."""
    return paper.SUBSTITUTES.get(record.dataset, record.dataset)


def _by_method(column: SheetColumn, records: Sequence[Record]) -> dict[str, list[float]]:
    """Each method's figures, one per seed: the mean over OOD graphs; of times, the median over shifts too."""
    chosen = [record for record in records if _matches(column, record)]
    if column.metric in TIMED:
        return _times(column.metric, chosen)
    return {summary.method: summary.values[METRICS[column.metric]] for summary in summaries(chosen)}


def _times(metric: str, records: Iterable[Record]) -> dict[str, list[float]]:
    seconds: dict[str, dict[int, list[float]]] = {}
    for record in records:
        spent = record.seconds
        value = spent["epoch"] if metric == "train_s_per_epoch" else spent["forward"] + spent["score"]
        seconds.setdefault(record.method, {}).setdefault(record.seed, []).append(value)
    return {method: [median(values) for values in seeds.values()] for method, seeds in seconds.items()}


def _mark_best(rows: list[list[Comparison]], index: int, column: SheetColumn) -> None:
    """Mark the best and the second best mean of a column; equal ones share a place."""
    if column.metric in TIMED or column.metric == "ID_ACC":
        return
    means = {round(row[index].mean or 0.0, 1) for row in rows if row[index].mean is not None}
    ordered = sorted(means, reverse=not column.lower)
    for row in rows:
        own = row[index].mean
        if own is not None and (place := 1 + ordered.index(round(own, 1))) <= 2:
            row[index] = replace(row[index], place=place)
