"""The report of a study: everything that its records show, as one document, and as files."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnsafe.bench import paper
from gnnsafe.bench.figures import FIGURES
from gnnsafe.bench.store import Record
from gnnsafe.bench.summary import summaries
from gnnsafe.datasets import CONTROLS
from gnnsafe.display import shown
from gnnsafe.files import replacing
from gnnsafe.report import charts
from gnnsafe.report.audit import audit_section
from gnnsafe.report.choices import choices_section
from gnnsafe.report.distributions import distributions
from gnnsafe.report.document import Document, Section, as_html, as_latex, as_markdown
from gnnsafe.report.footnotes import Notes
from gnnsafe.report.intervals import intervals_section
from gnnsafe.report.order import order_section
from gnnsafe.report.places import order
from gnnsafe.report.plotting import save_chart, specification
from gnnsafe.report.ranks import ranking
from gnnsafe.report.sheets import Sheet, sheets

__all__ = [
    "as_csv",
    "figure_section",
    "order_figures",
    "order_sections",
    "study_document",
    "write_figure",
    "write_report",
]

FIGURES_FOLDER = "figures"
NAMED = 5  # methods that the first lines name; of more they say how many
PAPER = ("paper", "gcn")  # protocol and backbone of the paper's tables
READING = (
    "Percent: mean ± standard deviation over seeds, and beside it what the paper published, from one seed. AUPR and "
    "FPR95 have ID nodes as positives, as in the paper. Bold: best of the methods with, or without, exposure; "
    "underlined or italic: second best. ▲ ▼: ours lies above or below the paper's by more than one further seed of "
    "ours would, 95 times in 100. Raised numbers: the notes below."
)

SUBSTITUTE = (
    "{}: ogbn-arxiv's real graph, labels and years with a substitute feature, GPT-3.5's guesses of the class; its "
    "figures are not Arxiv's, beside whose published ones they stand, and degrees alone tell most of its OOD nodes: "
    "read them beside DegreeBalance and the AUROC among nodes of equal degree in the order of methods."
)

TIMING = (
    "Training time is the objective's, preparing included; inference is one forward on the ID graph and on every OOD "
    "graph, fitting and scoring. Ours: one thread of a CPU that may have had other work; the paper's: a GPU."
)


WITHOUT_HONEST = (
    "Test data chose epoch and settings of {}: these are ranked nowhere, and shown beside honest runs alone, of which "
    "there are none here: run the same with '--search' in place of '--selection test' into the same folder."
)


def study_document(
    records: Sequence[Record], figures: Mapping[int, Sequence[Record]], audited: Sequence[Record] = ()
) -> Document:
    """All that these records show.

    Args:
        records: Of the study.
        figures: Those of the paper's figures, by their number.
        audited: Those of an audit of its own, whose honest runs were searched for; the study's where there are none.
    """
    every, records = records, [record for record in records if record.selection == "validation"]
    orders = order_sections(records)
    sections: list[Section] = []
    for table, section in zip(_tables(records), orders, strict=True):
        where = "" if len(orders) == 1 else f" ({table[0]} protocol, {table[1]})"
        sections += [replace(section, title=section.title + where)]
        sections += _comparison(_of(table, records), where, "-".join(table))
        if table[0] == "rigorous":
            beyond = intervals_section(_of(table, records))
            sections.append(replace(beyond, title=beyond.title + where))
    audit, lead = audit_section(audited or every), _lead(records) if records else []
    sections += [] if audit is None else [audit]
    if audit is None and (chosen := sum(record.selection == "test" for record in audited or every)):
        lead.append(WITHOUT_HONEST.format(_count(chosen, "record")))
    sections += _paper_sections(_of(PAPER, records))
    sections += [choices_section(records)] if records else []
    sections += [figure_section(number, figures[number]) for number in sorted(figures)]
    return Document("gnnsafe bench: out-of-distribution nodes on graphs", lead, sections)


def order_sections(records: Sequence[Record]) -> list[Section]:
    """The order of methods, a table for each protocol and backbone; what test data chose is in none of them."""
    records = [record for record in records if record.selection == "validation"]
    return [order_section(_of(table, records)) for table in _tables(records)]


def order_figures(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The same as figures."""
    records = [record for record in records if record.selection == "validation"]
    return [
        {
            "protocol": table[0],
            "backbone": table[1],
            "methods": [place.to_dict() for place in order(_of(table, records))],
        }
        for table in _tables(records)
    ]


def _tables(records: Sequence[Record]) -> list[tuple[str, str]]:
    return sorted({(record.protocol, record.backbone) for record in records})


def _of(table: tuple[str, str], records: Sequence[Record]) -> list[Record]:
    return [record for record in records if (record.protocol, record.backbone) == table]


def _lead(records: Sequence[Record]) -> list[str]:
    seeds, methods = len({record.seed for record in records}), len({record.method for record in records})
    settings = len({(record.dataset, record.shift) for record in records})
    # a training that several shifts share has the same seconds in each
    trainings = {(r.dataset, r.seed, r.backbone, r.objective_repr, r.lr, r.seconds["train"]) for r in records}
    return [
        f"{_count(methods, 'method')} in {_count(settings, 'setting')}, up to {_count(seeds, 'seed')}; "
        f"{_count(len(records), 'record')} of gnnsafe {_codes(records)}, torch {records[-1].versions['torch']}; "
        f"{sum(training[-1] for training in trainings) / 60:.0f} minutes of training, one thread each.",
        "Made by 'gnnsafe report' from the records of 'gnnsafe bench'.",
    ]


def _codes(records: Sequence[Record]) -> str:
    """The code that most of them are of, and which methods' records are of another."""
    first, *others = Counter(record.versions["gnnsafe"] for record in records).most_common()
    texts = []
    for code, count in others:
        methods = sorted({record.method for record in records if record.versions["gnnsafe"] == code})
        named = ", ".join(methods) if len(methods) <= NAMED else _count(len(methods), "method")
        texts.append(f"{_count(count, 'record')} of {named}: {code}")
    return f"{first[0]} ({'; '.join(texts)})" if texts else first[0]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _comparison(records: Sequence[Record], where: str, name: str) -> list[Section]:
    records = [record for record in records if record.shift not in CONTROLS]
    if not records:
        return []
    shown, sections = _shown(records), []
    if (found := ranking(records)) is not None:
        chart = specification(charts.rank_chart(found))
        text = "Methods whose bars do not overlap differ by the critical difference or more (Nemenyi, 5 %)."
        sections.append(Section(f"Mean ranks{where}", [text], chart=chart, name=f"ranks-{name}"))
    texts = {
        "ROC curves": (
            charts.roc_curves,
            "Mean over seeds and OOD graphs. Click a method in the legend to see it alone.",
        ),
        "Accuracy of the nodes that are kept": (
            charts.kept_accuracy,
            "Accuracy of the classifier on the ID test nodes with the lowest scores, as the threshold tightens from "
            "right to left: a line that rises to the left says that the score also tells which answers are wrong.",
        ),
        "Spread over seeds": (charts.seed_spread, "AUROC of every seed, the mean over its OOD graphs."),
    }
    for title, (draw, text) in texts.items():
        stem = f"{title.split()[0].lower()}-{name}"
        sections.append(Section(title + where, [text], chart=specification(draw(records, shown)), name=stem))
    return sections


def _shown(records: Sequence[Record]) -> list[str]:
    """Methods for charts that have room for a few: the paper's, then the best ones."""
    run = [place.method for place in order(records)]
    return [
        *(method for method in paper.PAPER_METHODS if method in run),
        *(m for m in run if m not in paper.PAPER_METHODS),
    ][: charts.MOST_LINES]


def _paper_sections(records: Sequence[Record]) -> list[Section]:
    tables, notes = sheets(records), Notes()
    sections = [Section(sheet.name, _about(sheet), sheet.grids(notes)) for sheet in tables]
    if sections:
        missing = {*range(1, 9)} - {sheet.number for sheet in tables}
        substitutes = {record.dataset for record in records} & {*paper.SUBSTITUTES}
        absent = [SUBSTITUTE.format(name) for name in sorted(substitutes)]
        absent += [f"No records for table {number}." for number in sorted(missing)]
        sections.append(Section("Notes on the paper's figures", [READING, *absent], notes=notes.lines()))
    return sections


def _about(sheet: Sheet) -> list[str]:
    return [TIMING] if sheet.number == 8 else []


def figure_section(number: int, records: Sequence[Record]) -> Section:
    """One of the paper's figures."""
    drawings: dict[int, Callable[[Sequence[Record]], Any]]
    drawings = {1: distributions, 2: charts.backbones, 3: charts.sweeps}
    seeds = len({record.seed for record in records})
    text = (
        "First seed. The dashed line accepts 95 % of ID nodes." if number == 1 else f"Mean of {_count(seeds, 'seed')}."
    )
    return Section(
        f"Figure {number}: {FIGURES[number]}",
        [text],
        chart=specification(drawings[number](records)),
        name=f"figure-{number}",
    )


def as_csv(records: Sequence[Record]) -> str:
    """One figure a row: those of the paper's tables, then every metric of every setting, of no table."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    records = [record for record in records if record.selection == "validation"]
    heads = "table,protocol,backbone,dataset,shift,method,exposure,metric,mean,std,seeds,paper,beyond_spread,place,note"
    rows.writerow(heads.split(","))
    for sheet in sheets(_of(PAPER, records)):
        for block in sheet.blocks:
            for method, cells in block.rows.items():
                for column, cell in zip(block.columns, cells, strict=True):
                    what = (
                        *PAPER,
                        *map(_words, (column.dataset, column.shift, method)),
                        sheet.exposure[method],
                        column.metric,
                    )
                    figures = (_plain(cell.mean), _plain(cell.spread), len(cell.values), _plain(cell.paper))
                    rows.writerow([sheet.number, *what, *figures, cell.beyond, cell.place or "", _words(cell.note)])
    exposure = {record.method: record.exposure for record in records}
    for table in _tables(records):
        for found in summaries(_of(table, records)):
            setting = (*table, *map(_words, (found.dataset, found.shift, found.method)), exposure[found.method])
            for metric, (mean, spread) in found.metrics.items():
                rows.writerow(["", *setting, metric, _plain(mean), _plain(spread), found.seeds, "", "", "", ""])
    return text.getvalue()


def _words(text: str) -> str:
    """A text of a table that people open in a spreadsheet, which takes what begins with = + - @ for a formula."""
    return ("'" if text[:1] in {*"=+-@"} else "") + shown(text)


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def write_report(folder: Path, document: Document, records: Sequence[Record]) -> dict[str, Path]:
    """The document in every format, and its charts as SVG, PNG and PDF; returns the files by what they are."""
    for section in document.sections:
        if section.chart is not None:
            save_chart(section.chart, folder / FIGURES_FOLDER / section.name)
    return {
        "page": _written(folder / "report.html", as_html(document)),
        "Markdown": _written(folder / "RESULTS.md", as_markdown(document, FIGURES_FOLDER)),
        "LaTeX": _written(folder / "tables.tex", as_latex(document, FIGURES_FOLDER)),
        "CSV": _written(folder / "tables.csv", as_csv(records)),
        "charts": folder / FIGURES_FOLDER,
    }


def write_figure(number: int, records: Sequence[Record], folder: Path) -> list[Path]:
    """One of the paper's figures as a page, SVG, PNG and PDF; returns the files."""
    section = figure_section(number, records)
    assert section.chart is not None
    page = _written(folder / f"{section.name}.html", as_html(Document(section.title, (), [section])))
    return [page, *save_chart(section.chart, folder / section.name)]


def _written(path: Path, text: str) -> Path:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
    return path
