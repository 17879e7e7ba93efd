"""Where the paper's published figures must not be read blindly: notes on methods, and on single figures."""

from __future__ import annotations

from statistics import mean

from gnnsafe.bench import paper

__all__ = ["Notes", "comparable", "figure_note", "method_note"]

DETECTION_METRICS = ("AUROC", "AUPR", "FPR95")
GRAPHS = {("twitch", "domain"): (3, ("ES", "FR", "RU")), ("arxiv", "time"): (4, ("2018", "2019", "2020"))}
LEAK = "published runs send the exposure graph through BatchNorm in training, though this method has no exposure"

METHOD_NOTES = {
    "ODIN": "published with the wrong direction (the negative of its confidence taken for ID-ness); ours is right",
    "Mahalanobis": "published with the wrong direction (the distance taken for ID-ness); ours is right, on embeddings "
    "of unit length",
    "Energy": LEAK,
    "GKDE": "published: the better of two scores for each shift; ours is −max ᾱ everywhere",
    "GNNSafe": "isolated nodes: as published, their scores decay by α at every step, which reads as OOD; 'GNNSafe, "
    "keep' is our default; " + LEAK,
    "Energy FT": "published with exposure energies taken at the indices of ID training nodes; ours takes its own",
    "GNNSafe++": "isolated nodes: as published, their scores decay; "
    "the margin loss averages each set, as the paper's formula; published runs cut both to the shorter",
}


class Notes:
    """Footnotes of a whole report, numbered as they are first needed."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def number(self, text: str) -> str:
        """The number of this footnote; none of an empty one."""
        return self.texts.setdefault(text, str(len(self.texts) + 1)) if text else ""

    def lines(self) -> list[str]:
        """Each text after its number."""
        return [f"{number}. {text}" for text, number in self.texts.items()]


def method_note(method: str, table: int) -> str:
    """What to know of the paper's row, or nothing."""
    return "" if table == 8 else METHOD_NOTES.get(method, "")


def comparable(dataset: str, metric: str) -> bool:
    """Whether the paper's figure is of the same quantity."""
    return (dataset, metric) != ("twitch", "ID_ACC")


def figure_note(table: int, dataset: str, shift: str, method: str, metric: str) -> str:
    """Which other figure the paper has for the same thing, or nothing: found by comparing its tables."""
    figures = paper.tables_with(dataset, shift, method, metric)
    others = {number: value for number, value in figures.items() if value != figures.get(table, value)}
    notes = [f"table {number} has {value:.2f}" for number, value in others.items()]
    notes += ["ROC-AUC under that name; ours is accuracy"] * (not comparable(dataset, metric) and bool(figures))
    if table == 1 and (dataset, shift) in GRAPHS and metric in DETECTION_METRICS:
        notes += _not_the_mean(dataset, shift, method, metric)
    return "; ".join(notes)


def _not_the_mean(dataset: str, shift: str, method: str, metric: str) -> list[str]:
    number, names = GRAPHS[dataset, shift]
    whole = paper.published(dataset, shift, method, metric, table=1)
    parts = {name: paper.published(dataset, f"{shift}:{name}", method, metric) for name in names}
    known = [part for part in parts.values() if part is not None]
    if whole is None or len(known) < len(parts) or abs(mean(known) - whole) < 0.05:  # of rounding
        return []
    alone = [f"that of {name} alone; " for name, part in parts.items() if part == whole]
    return [f"{''.join(alone)}the mean of table {number} is {mean(known):.2f}"]
