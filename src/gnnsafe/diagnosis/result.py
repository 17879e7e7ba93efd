"""What a diagnosis says, and how it is printed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding

from gnnsafe.homophily import HETEROPHILIC
from gnnsafe.methods import Method

__all__ = ["HETEROPHILY", "Candidate", "Diagnosis", "Verdict"]

HETEROPHILY = (
    "This graph is heterophilic: neighbours are hardly more alike than by chance, and what they say about a node, by "
    "propagation too, is to be trusted little."
)
OPTIMISTIC = (
    "New classes are known ones taken out of what detectors see: the model has seen them, so real ones are harder to "
    "find. "
)
PLANTED = (
    "All trouble here is planted, and real trouble may differ: benchmarks/diagnosis.md has how often such advice was "
    "right."
)


@dataclass(frozen=True)
class Candidate:
    """One way to score, and its AUROC under each kind of trouble, trial by trial."""

    name: str
    method: Method
    """To make a detector with: `Detector(model, candidate.method).fit(data)`."""
    auroc: dict[str, list[float]]

    def mean(self, trouble: str) -> float:
        """The mean AUROC under that kind of trouble."""
        return fmean(self.auroc[trouble])

    def error(self, trouble: str) -> float:
        """The standard error of that mean, over the trials."""
        return _error(self.auroc[trouble])


@dataclass(frozen=True)
class Verdict:
    """What to use against one kind of trouble."""

    trouble: str
    recommended: Candidate
    """The default, unless another candidate is clearly better."""
    default: Candidate
    """The detector as it is."""
    best: Candidate
    """The one with the best figures, clearly better or not."""

    @property
    def clear(self) -> bool:
        """Whether a candidate is clearly better than the detector as it is."""
        return self.recommended is not self.default

    @property
    def lead(self) -> tuple[float, float]:
        """By how much the best candidate's AUROC is above the default's, on average, and the standard error of that."""
        pairs = zip((self.recommended if self.clear else self.best).auroc[self.trouble], self._usual, strict=True)
        differences = [mine - its for mine, its in pairs]
        return fmean(differences), _error(differences)

    @property
    def trials(self) -> int:
        """How many there were."""
        return len(self._usual)

    @property
    def _usual(self) -> list[float]:
        return self.default.auroc[self.trouble]

    def __str__(self) -> str:
        usual, (lead, error) = self.default, self.lead
        figure = f"{usual.name} as it is: AUROC {_percent(usual.mean(self.trouble), usual.error(self.trouble))}"
        ahead = f"{100 * lead:+.1f} ± {100 * error:.1f} in {self.trials} trials"
        if self.clear:
            return f"{self.trouble}: use {self.recommended.name} ({ahead}; {figure})"
        if self.best is self.default:
            return f"{self.trouble}: keep {figure}; no candidate finds more"
        return f"{self.trouble}: no clear winner, keep {figure}; best looks {self.best.name} ({ahead})"

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        chosen, (lead, error) = self.recommended, self.lead
        return {
            "trouble": self.trouble, "recommended": chosen.name, "method": repr(chosen.method), "clear": self.clear,
            "auroc": chosen.mean(self.trouble), "error": chosen.error(self.trouble), "default": self.default.name,
            "default_auroc": self.default.mean(self.trouble), "best": self.best.name, "lead": lead, "lead_error": error,
            "trials": self.trials,
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What a graph says about detectors: print it, or `to_dict()`.

    `verdicts` has what to use against each kind of trouble: `found.verdicts["new classes"].recommended.method`.
    """

    verdicts: dict[str, Verdict]
    """By kind of trouble: new classes, scattered nodes, regions, whole graph; those that could be tried."""
    overall: Candidate
    """If you do not know which trouble to expect: the detector as it is, unless another is ahead in every kind."""
    closest: str
    """The kind of trouble in which `overall` is the least ahead."""
    candidates: tuple[Candidate, ...]
    """The detector's own score, where that may help with each number of steps and alpha; then other methods."""
    default: Candidate
    """The detector as it is."""
    trials: dict[str, tuple[str, ...]]
    """What was tried of each kind of trouble: the classes left out, or the draws of a shift."""
    left_out: dict[str, str]
    """What could not be tried, and why."""
    prediction_homophily: tuple[float, float]
    """Share of edges that join nodes of one predicted class, and the same beyond chance (1 is all, 0 is chance)."""
    label_homophily: tuple[float, float] | None
    """The same for labels of training and validation nodes, where enough edges join such nodes."""
    score_homophily: float
    """Correlation of the scores, before propagation, of the two ends of an edge."""

    @property
    def heterophilic(self) -> bool:
        """Whether neighbours are hardly more alike than chance makes them."""
        known = [self.prediction_homophily, *([self.label_homophily] if self.label_homophily else [])]
        return any(adjusted < HETEROPHILIC for _, adjusted in known)

    def shown(self) -> tuple[Candidate, ...]:
        """The rows of the table: all but own scores with an alpha that is neither usual nor recommended.

        Returns:
            Those candidates, in their order.
        """
        named = {self.default.name, self.overall.name}
        named |= {verdict.recommended.name for verdict in self.verdicts.values()}
        named |= {verdict.best.name for verdict in self.verdicts.values()}
        return tuple(c for c in self.candidates if "α" not in c.name or c.name in named)

    def __rich__(self) -> Group:
        from gnnsafe.report.diagnosis import candidates_table

        rows = [(c.name, {trouble: c.mean(trouble) for trouble in self.verdicts}) for c in self.shown()]
        marked = {trouble: verdict.recommended.name for trouble, verdict in self.verdicts.items()}
        left_out = [f"Left out: {name} ({why})" for name, why in self.left_out.items()]
        table = candidates_table(rows, marked=marked, default=self.default.name)
        caveats = OPTIMISTIC * ("new classes" in self.verdicts) + PLANTED
        return Group(*self._lines(), "", table, "", *left_out, caveats)

    def __str__(self) -> str:
        console = Console(width=100, color_system=None, highlight=False, markup=False, force_jupyter=False)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it.

        Returns:
            Numbers, lists and texts by name.
        """
        return {
            "verdicts": [verdict.to_dict() for verdict in self.verdicts.values()],
            "overall": {"recommended": self.overall.name, "method": repr(self.overall.method)},
            "default": self.default.name,
            "prediction_homophily": _pair(self.prediction_homophily),
            "label_homophily": self.label_homophily and _pair(self.label_homophily),
            "score_homophily": _number(self.score_homophily),
            "heterophilic": self.heterophilic,
            "candidates": [{"name": c.name, "method": repr(c.method), "auroc": c.auroc} for c in self.candidates],
            "trials": {trouble: list(names) for trouble, names in self.trials.items()},
            "left_out": self.left_out,
        }

    def _lines(self) -> list[RenderableType]:
        lines: list[RenderableType] = []
        for what, pair in (
            ("Neighbours have the same predicted class", self.prediction_homophily),
            ("Known labels of neighbours are the same", self.label_homophily),
        ):
            if pair is not None and not math.isnan(pair[0]):
                lines.append(f"{what} on {pair[0]:.0%} of edges ({pair[1]:.2f} beyond chance).")
        if not math.isnan(self.score_homophily):
            lines.append(f"Scores before propagation correlate along edges by {self.score_homophily:.2f}.")
        if self.heterophilic:
            lines.append(HETEROPHILY)
        verdicts = (Padding(str(verdict), (0, 0, 0, 2)) for verdict in self.verdicts.values())
        return [*lines, "", "If the trouble to come is", *verdicts, f"If you do not know which: {self._overall()}"]

    def _overall(self) -> str:
        if self.overall is self.default:
            return f"keep {self.default.name}; no candidate is ahead in every kind of trouble."
        ahead = 100 * (self.overall.mean(self.closest) - self.default.mean(self.closest))
        return f"use {self.overall.name}, ahead in every kind of trouble (the least, {ahead:+.1f}, in {self.closest})."


def _error(values: list[float]) -> float:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _percent(mean: float, error: float) -> str:
    return f"{100 * mean:.1f} ± {100 * error:.1f}"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _pair(values: tuple[float, float]) -> list[float | None]:
    return [_number(value) for value in values]
