"""Does propagation help on this graph, and which detector suits which trouble? Judged without any OOD data.

Shifts are planted into the user's own ID graph, of features and of edges; scattered, in clusters, or over all of it;
and every candidate is asked to find them. What comes out are the planted shifts' figures: real trouble may differ.
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev
from typing import Any

import torch
from rich.console import Console, Group
from rich.progress import Progress
from torch import Tensor

from gnnsafe.datasets import shifts
from gnnsafe.errors import HeterophilyWarning, InputError, require_known, require_whole
from gnnsafe.graph import Data, changed, node_labels, node_mask
from gnnsafe.methods import METHODS, GNNSafe, Method, Propagated
from gnnsafe.metrics import detection
from gnnsafe.outputs import Outputs
from gnnsafe.propagation import diffused

__all__ = ["Candidate", "Diagnosis", "diagnosis", "homophily", "score_homophily"]

CANDIDATES = ("msp", "energy", "agreement", "edge-disagreement", "knn", "mahalanobis", "diffused-knn", "mean-cosine")
STEPS = (1, 2, 4, 8, 16)
ALPHAS = (0.1, 0.5, 0.9)
HETEROPHILIC = 0.25  # adjusted homophily below it; real graphs lie well to either side (Platonov et al., 2023)
MARGIN = 0.005  # of AUROC, for which fewer steps are not given up
EVIDENCE = 30  # edges between labelled nodes, below which labels are not heard
PATIENCE = 2.0  # seconds before progress is shown

PLACES = ("scattered", "clustered", "whole graph")
DRAWS: dict[str, Callable[..., Data]] = {
    "feature, scattered": partial(shifts.planted, kind="feature"),
    "feature, clustered": partial(shifts.planted, kind="feature", clustered=True),
    "feature, whole graph": partial(shifts.feature, test_nodes="id-test"),
    "structure, scattered": partial(shifts.planted, kind="structure"),
    "structure, clustered": partial(shifts.planted, kind="structure", clustered=True),
    "structure, whole graph": partial(shifts.rewire, test_nodes="id-test"),
}


@dataclass(frozen=True)
class Candidate:
    """One way to score, and its AUROC under each trouble: mean and standard deviation over the draws."""

    name: str
    auroc: dict[str, tuple[float, float]]
    steps: int | None = None
    """Of the detector's own score; None for another method."""
    alpha: float | None = None

    def mean(self, place: str = "") -> float:
        """The mean AUROC over all troubles, or over those of one place."""
        return fmean(mean for trouble, (mean, _) in self.auroc.items() if trouble.endswith(place))


@dataclass(frozen=True)
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

        rows = [(candidate.name, candidate.auroc, candidate.mean()) for candidate in self.shown()]
        left_out = [f"Left out: {name} ({why})" for name, why in self.left_out.items()]
        return Group(*self._lines(), "", candidates_table(rows, marked=self.recommended.name), *left_out)

    def __str__(self) -> str:
        console = Console(width=100, color_system=None, highlight=False, markup=False)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

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


HETEROPHILY = (
    "This graph is heterophilic: neighbours are hardly more alike than by chance, and what they say about a node, by "
    "propagation too, is to be trusted little."
)


def homophily(classes: Tensor, edge_index: Tensor) -> tuple[float, float]:
    """Share h of edges within a class, and (h − Σ_c q_c²) / (1 − Σ_c q_c²), q the classes' shares of edge ends.

    Self-loops do not count. The second is adjusted homophily (Platonov et al., 2023): 0 by chance, 1 at most; NaN where
    there is one class or no edge.

    >>> homophily(torch.tensor([0, 0, 1, 1]), torch.tensor([[0, 1, 2, 3, 1, 2], [1, 0, 3, 2, 2, 1]]))
    (0.666..., 0.333...)
    """
    ends = classes[edge_index[:, edge_index[0] != edge_index[1]]]
    if ends.numel() == 0:
        return math.nan, math.nan
    share = float((ends[0] == ends[1]).double().mean())
    chance = float((torch.bincount(ends.flatten()).double() / ends.numel()).square().sum())
    return share, (share - chance) / (1 - chance) if chance < 1 else math.nan


def score_homophily(scores: Tensor, edge_index: Tensor) -> float:
    """Pearson's correlation of the scores of an edge's two ends, self-loops apart; NaN where there is none.

    >>> score_homophily(torch.tensor([1.0, 1.0, 5.0, 5.0]), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]))
    1.0
    """
    ends = scores.double()[edge_index[:, edge_index[0] != edge_index[1]]]
    ends = ends - ends.mean(dim=1, keepdim=True)
    scale = float(ends.square().sum(dim=1).prod().sqrt())
    return float(ends.prod(dim=0).sum()) / scale if scale > 0 else math.nan


def diagnosis(
    method: Method,
    ask: Callable[[Data], Outputs],
    data: Data,
    *,
    candidates: Sequence[Method | str] = CANDIDATES,
    draws: int = 3,
    seed: int = 0,
) -> Diagnosis:
    """Of a fitted method, on the outputs that `ask` gives for a graph, and the ID graph that it was fitted on."""
    require_whole("draws", draws, 1)
    data, base = _ready(data), _base(method)
    outputs = ask(data)
    candidates = [given for given in candidates if given != base]
    others, left_out = _fitted(candidates, outputs, node_labels(data, outputs.task), node_mask(data, "train_mask"))
    own_edges = [name for name in getattr(data, "edge_attrs", list)() if name != "edge_index"]
    troubles = [trouble for trouble in DRAWS if not (own_edges and trouble.startswith("structure"))]
    if own_edges:
        left_out["structure"] = f"data.{own_edges[0]} belongs to the edges, and new edges have none"
    found: dict[tuple[str, str], list[float]] = {}
    with _progress("Planting shifts", len(troubles) * draws) as advance:
        clean = _scores(method, others, outputs)
        for trouble in troubles:
            for draw in range(draws):
                for name, auroc in _aurocs(method, others, ask, _planted(trouble, data, seed + draw), clean, data):
                    found.setdefault((name, trouble), []).append(auroc)
                advance()
    return _concluded(
        [_candidate(_name(base, *how), found, troubles, *how) for how in _settings()],
        [_candidate(name, found, troubles) for name in others],
        found,
        draws,
        prediction_homophily=_prediction_homophily(outputs),
        label_homophily=_label_homophily(data, outputs),
        score_homophily=score_homophily(method.unpropagated(outputs).scores, data.edge_index),
        left_out=left_out,
    )


def _ready(data: Data) -> Data:
    """Dense features, which shifts need, and a test mask: without one, all nodes that have taught nothing."""
    x, masks = data.x, [getattr(data, name, None) for name in ("train_mask", "val_mask")]
    values: dict[str, Any] = {} if x.layout == torch.strided else {"x": x.to_dense()}
    if getattr(data, "test_mask", None) is None:
        seen = torch.stack([mask for mask in masks if mask is not None]).any(dim=0)
        values["test_mask"] = ~seen
    return changed(data, **values)


def _planted(trouble: str, data: Data, seed: int) -> Data:
    shift = DRAWS[trouble]
    if shift.func is not shifts.planted:  # type: ignore[attr-defined]
        return shift(data, seed)
    return shift(data, seed, share=min(0.1, 0.5 * float(data.test_mask.double().mean())))


def _settings() -> Iterator[tuple[int, float]]:
    """No propagation, then more and more of it."""
    yield 0, 0.5
    yield from ((steps, alpha) for steps in STEPS for alpha in sorted(ALPHAS, reverse=True))


def _name(base: str, steps: int, alpha: float) -> str:
    name = base if steps == 0 else f"{base} K={steps}"
    return name if steps == 0 or alpha == 0.5 else f"{name} α={alpha:g}"


def _base(method: Method) -> str:
    """What the method's score is called before it is propagated."""
    if isinstance(method, GNNSafe):
        return "energy"
    within = method.method if isinstance(method, Propagated) else method
    name = next((name for name, known in METHODS.items() if known is type(within)), type(within).__name__)
    return f"{name}, unpropagated" if within is method and hasattr(method, "steps") else name


def _fitted(
    candidates: Sequence[Method | str], outputs: Outputs, y: Tensor, mask: Tensor
) -> tuple[dict[str, Method], dict[str, str]]:
    fitted, left_out = {}, {}
    for given in candidates:
        if isinstance(given, str):
            require_known("candidates", given, METHODS)
        method = METHODS[given]() if isinstance(given, str) else copy.deepcopy(given)
        name = given if isinstance(given, str) else repr(given)
        try:
            fitted[name] = method.fit(outputs, y, mask)
            method.score(outputs)
        except InputError as error:
            fitted.pop(name, None)
            left_out[name] = str(error)
    return fitted, left_out


def _scores(method: Method, others: Mapping[str, Method], outputs: Outputs) -> dict[str, Tensor]:
    """The scores of all candidates on one graph; each step of propagation is made once."""
    before, edges, base = method.unpropagated(outputs), outputs.graph.edge_index, _base(method)
    scores = {_name(base, 0, 0.5): before.scores}
    for alpha in ALPHAS:
        values, done = before.scores, 0
        for steps in STEPS:
            values = diffused(values, edges, steps=steps - done, alpha=alpha, isolated=before.isolated)
            scores[_name(base, steps, alpha)], done = values, steps
    return scores | {name: other.score(outputs) for name, other in others.items()}


def _aurocs(
    method: Method, others: Mapping[str, Method], ask: Callable[[Data], Outputs], graph: Data,
    clean: Mapping[str, Tensor], data: Data,
) -> Iterator[tuple[str, float]]:  # fmt: skip
    """Planted nodes against the ID test nodes of the same graph; a whole graph's against those of the original."""
    among = getattr(graph, "test_mask", None)
    scores = _scores(method, others, ask(graph))
    for name, found in scores.items():
        inside = clean[name][data.test_mask] if among is None else found[among]
        yield name, detection(inside, found[graph.mask]).auroc


def _candidate(
    name: str, found: Mapping[tuple[str, str], list[float]], troubles: Sequence[str], *how: Any
) -> Candidate:
    figures = {trouble: found[name, trouble] for trouble in troubles}
    spread = {t: stdev(values) if len(values) > 1 else 0.0 for t, values in figures.items()}
    return Candidate(name, {t: (fmean(values), spread[t]) for t, values in figures.items()}, *how)


def _concluded(
    own: list[Candidate],
    others: list[Candidate],
    found: Mapping[tuple[str, str], list[float]],
    draws: int,
    **facts: Any,
) -> Diagnosis:
    """As little propagation as comes close to the best mean over all troubles."""
    chosen = _least_of_the_best(own, found, draws)
    steps, alpha = chosen.steps or 0, chosen.alpha or 0.0
    result = Diagnosis(steps, alpha, _reason(own, others, chosen), own=tuple(own), others=tuple(others), **facts)
    if result.heterophilic:
        warnings.warn(HETEROPHILY, HeterophilyWarning, stacklevel=4)
    return result


def _least_of_the_best(own: list[Candidate], found: Mapping[tuple[str, str], list[float]], draws: int) -> Candidate:
    best = max(own, key=Candidate.mean)
    means = [fmean(found[best.name, trouble][draw] for trouble in best.auroc) for draw in range(draws)]
    error = stdev(means) / math.sqrt(draws) if draws > 1 else 0.0
    return next(candidate for candidate in own if candidate.mean() >= best.mean() - max(error, MARGIN))


def _reason(own: list[Candidate], others: list[Candidate], chosen: Candidate) -> str:
    alone = own[0]
    if chosen is alone:
        most = max(own[1:], key=Candidate.mean)
        text = (
            f"Recommended: steps=0, no propagation: AUROC {100 * alone.mean():.1f} on average over the planted shifts, "
            f"and no more than {100 * most.mean():.1f} with any."
        )
    else:
        text = (
            f"Recommended: steps={chosen.steps}, alpha={chosen.alpha:g}: AUROC {100 * chosen.mean():.1f} on average over "
            f"the planted shifts, {100 * alone.mean():.1f} without propagation."
        )
    better = max(others, key=Candidate.mean, default=chosen)
    other = f"Of the other methods {better.name} finds more ({100 * better.mean():.1f})."
    sentences = [text, *(_place(own, place) for place in PLACES)]
    return " ".join([*sentences, other] if better.mean() > chosen.mean() + MARGIN else sentences)


def _place(own: list[Candidate], place: str) -> str:
    """What propagation does to one kind of trouble, at its best."""
    where = {
        "scattered": "Where OOD nodes are scattered",
        "clustered": "Where they stand in clusters",
        "whole graph": "Where a whole graph shifts",
    }[place]
    alone, best = own[0].mean(place), max(own[1:], key=lambda candidate: candidate.mean(place))
    figures = f"({100 * alone:.1f} → {100 * best.mean(place):.1f} with steps={best.steps}, alpha={best.alpha:g})"
    if best.mean(place) > alone + MARGIN:
        return f"{where} it helps {figures}."
    usual = next(candidate for candidate in own if candidate.steps == 2 and candidate.alpha == 0.5)
    if usual.mean(place) < alone - MARGIN:
        return f"{where} it hurts ({100 * alone:.1f} → {100 * usual.mean(place):.1f} with steps=2)."
    return f"{where} it changes little {figures}."


def _prediction_homophily(outputs: Outputs) -> tuple[float, float]:
    if outputs.logits.shape[1] == 0:
        return math.nan, math.nan
    single = outputs.task == "multiclass"
    predicted = outputs.logits.argmax(dim=1, keepdim=True) if single else (outputs.logits > 0).long()
    return _mean_homophily(predicted, outputs.graph.edge_index)


def _label_homophily(data: Data, outputs: Outputs) -> tuple[float, float] | None:
    known = node_mask(data, "train_mask").clone()
    if getattr(data, "val_mask", None) is not None:
        known |= node_mask(data, "val_mask")
    source, target = data.edge_index
    edges = data.edge_index[:, known[source] & known[target] & (source != target)]
    if edges.shape[1] < EVIDENCE:
        return None
    y = node_labels(data, outputs.task)
    return _mean_homophily(y.view(len(y), -1).long(), edges)


def _mean_homophily(columns: Tensor, edge_index: Tensor) -> tuple[float, float]:
    """Over the labels of multilabel heads; those that all nodes have, or none, have no say in the second."""
    pairs = [homophily(column, edge_index) for column in columns.T]
    beyond = [adjusted for _, adjusted in pairs if not math.isnan(adjusted)]
    return fmean(share for share, _ in pairs), fmean(beyond) if beyond else math.nan


def _record(candidate: Candidate) -> dict[str, Any]:
    auroc = {trouble: {"mean": mean, "std": spread} for trouble, (mean, spread) in candidate.auroc.items()}
    own = {} if candidate.steps is None else {"steps": candidate.steps, "alpha": candidate.alpha}
    return {"name": candidate.name, **own, "mean": candidate.mean(), "auroc": auroc}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _pair(values: tuple[float, float]) -> list[float | None]:
    return [_number(value) for value in values]


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A call for every step done; a bar on a terminal, once the work has taken a while."""
    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task, start = bar.add_task(title, total=total), time.monotonic()

    def advance() -> None:
        bar.advance(task)
        if time.monotonic() - start > PATIENCE:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()
