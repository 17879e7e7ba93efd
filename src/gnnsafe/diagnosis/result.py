"""What a diagnosis says, and how it is printed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from rich.console import Console, Group

__all__ = ["HETEROPHILY", "Candidate", "Diagnosis"]

HETEROPHILIC = 0.25  # adjusted homophily below it; real graphs lie well to either side (Platonov et al., 2023)
HETEROPHILY = (
    "This graph is heterophilic: neighbours are hardly more alike than by chance, and what they say about a node, by "
    "propagation too, is to be trusted little."
)


@dataclass(frozen=True)
class Candidate:
    """One way to score, and its AUROC under each trouble, in each draw of it."""

    name: str
    auroc: dict[str, list[float]]
    steps: int | None = None
    """Of the detector's own score; None for another method."""
    alpha: float | None = None

    def mean(self, place: str = "") -> float:
        """The mean AUROC over all troubles, or over those of one place."""
        return fmean(fmean(draws) for trouble, draws in self.auroc.items() if trouble.endswith(place))

    def error(self) -> float:
        """The standard error of the mean over all troubles, from the draws."""
        means = [fmean(draws) for draws in zip(*self.auroc.values(), strict=True)]
        return stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What a graph says about detectors: print it, or `to_dict()`. `steps` and `alpha` are what it recommends."""

    steps: int
    alpha: float
    reason: str
    prediction_homophily: tuple[float, float]
    """Share of edges that join nodes of one predicted class, and the same beyond chance (1 is all, 0 is chance)."""
    label_homophily: tuple[float, float] | None
    """The same for labels of training and validation nodes, where enough edges join such nodes."""
    score_homophily: float
    """Correlation of the scores, before propagation, of the two ends of an edge."""
    own: tuple[Candidate, ...]
    """The detector's own score, without propagation and with each number of steps and alpha."""
    others: tuple[Candidate, ...]
    """Other methods, as they come."""
    left_out: dict[str, str]
    """What could not be tried, and why."""

    @property
    def heterophilic(self) -> bool:
        """Whether neighbours are hardly more alike than chance makes them."""
        known = [self.prediction_homophily, *([self.label_homophily] if self.label_homophily else [])]
        return any(adjusted < HETEROPHILIC for _, adjusted in known)

    @property
    def recommended(self) -> Candidate:
        """The detector's own score with the recommended steps and alpha."""
        return next(c for c in self.own if c.steps == self.steps and (c.steps == 0 or c.alpha == self.alpha))

    def shown(self) -> tuple[Candidate, ...]:
        """The rows of the table: own scores with α = ½ and as recommended, then the others."""
        usual = [c for c in self.own if c.steps == 0 or c.alpha == 0.5 or c is self.recommended]
        return (*usual, *self.others)

    def __rich__(self) -> Group:
        from gnnsafe.report.diagnosis import candidates_table

        figures = [{trouble: fmean(draws) for trouble, draws in c.auroc.items()} for c in self.shown()]
        rows = [(c.name, {**means, "mean": c.mean()}) for c, means in zip(self.shown(), figures, strict=True)]
        left_out = [f"Left out: {name} ({why})" for name, why in self.left_out.items()]
        return Group(*self._lines(), "", candidates_table(rows, marked=self.recommended.name), *left_out)

    def __str__(self) -> str:
        console = Console(width=100, color_system=None, highlight=False, markup=False, force_jupyter=False)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return {
            "steps": self.steps,
            "alpha": self.alpha,
            "reason": self.reason,
            "prediction_homophily": _pair(self.prediction_homophily),
            "label_homophily": self.label_homophily and _pair(self.label_homophily),
            "score_homophily": _number(self.score_homophily),
            "heterophilic": self.heterophilic,
            "own": [_record(candidate) for candidate in self.own],
            "others": [_record(candidate) for candidate in self.others],
            "left_out": self.left_out,
        }

    def _lines(self) -> list[str]:
        share, beyond = self.prediction_homophily
        lines = []
        if not math.isnan(share):
            lines.append(
                f"Neighbours have the same predicted class on {share:.0%} of edges ({beyond:.2f} beyond chance)."
            )
        if self.label_homophily:
            share, beyond = self.label_homophily
            lines.append(
                f"Known labels of neighbours are the same on {share:.0%} of edges ({beyond:.2f} beyond chance)."
            )
        if not math.isnan(self.score_homophily):
            lines.append(f"Scores before propagation correlate along edges by {self.score_homophily:.2f}.")
        if self.heterophilic:
            lines.append(HETEROPHILY)
        return [*lines, self.reason]


def _record(candidate: Candidate) -> dict[str, Any]:
    own = {} if candidate.steps is None else {"steps": candidate.steps, "alpha": candidate.alpha}
    return {
        "name": candidate.name,
        **own,
        "mean": candidate.mean(),
        "error": candidate.error(),
        "auroc": candidate.auroc,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _pair(values: tuple[float, float]) -> list[float | None]:
    return [_number(value) for value in values]
