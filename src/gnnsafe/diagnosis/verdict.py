"""How much propagation to recommend, and why."""

from __future__ import annotations

from collections.abc import Sequence

from gnnsafe.diagnosis.result import Candidate

__all__ = ["least_of_the_best", "reason"]

MARGIN = 0.005  # of AUROC, for which fewer steps are not given up

PLACES = {
    "scattered": "Where OOD nodes are scattered",
    "clustered": "Where they stand in clusters",
    "whole graph": "Where a whole graph shifts",
}


def least_of_the_best(own: Sequence[Candidate]) -> Candidate:
    """As little propagation as comes close to the best mean over all troubles: the candidates come in that order."""
    best = max(own, key=Candidate.mean)
    return next(candidate for candidate in own if candidate.mean() >= best.mean() - max(best.error(), MARGIN))


def reason(own: Sequence[Candidate], others: Sequence[Candidate], chosen: Candidate) -> str:
    """In words."""
    alone = own[0]
    if chosen is alone:
        most = max(own[1:], key=Candidate.mean)
        text = (
            f"Recommended: steps=0, no propagation: AUROC {100 * alone.mean():.1f} on average over the planted shifts, "
            f"and no more than {100 * most.mean():.1f} with any."
        )
    else:
        text = (
            f"Recommended: steps={chosen.steps}, alpha={chosen.alpha:g}: AUROC {100 * chosen.mean():.1f} on average "
            f"over the planted shifts, {100 * alone.mean():.1f} without propagation."
        )
    better = max(others, key=Candidate.mean, default=chosen)
    other = f"Of the other methods {better.name} finds more ({100 * better.mean():.1f})."
    sentences = [text, *(_place(own, place) for place in PLACES)]
    return " ".join([*sentences, other] if better.mean() > chosen.mean() + MARGIN else sentences)


def _place(own: Sequence[Candidate], place: str) -> str:
    """What propagation does to one kind of trouble, at its best."""
    where = PLACES[place]
    alone, best = own[0].mean(place), max(own[1:], key=lambda candidate: candidate.mean(place))
    figures = f"({100 * alone:.1f} → {100 * best.mean(place):.1f} with steps={best.steps}, alpha={best.alpha:g})"
    if best.mean(place) > alone + MARGIN:
        return f"{where} it helps {figures}."
    usual = next(candidate for candidate in own if candidate.steps == 2 and candidate.alpha == 0.5)
    if usual.mean(place) < alone - MARGIN:
        return f"{where} it hurts ({100 * alone:.1f} → {100 * usual.mean(place):.1f} with steps=2)."
    return f"{where} it changes little {figures}."
