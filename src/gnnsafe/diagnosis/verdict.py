"""What to recommend for a kind of trouble, and how sure that is.

Candidates are compared with the detector as it is, trial by trial, on the log-odds of AUROC: 97 → 99 counts as much as
75 → 90, since figures near their ceiling lie closer together. One is clearly better where the lower confidence
bound of its mean lead (Student's t over the trials) is above zero, at 95 % for all candidates together (Bonferroni: one
of n has 1 − 0.05 / n); of those, the one with the largest lead is recommended, and where there is none, the detector
stays as it is.

Why so strict: planted new classes are few and easy, and the best of a dozen candidates leads by chance. On Cora and
Photo with classes left out of training, a level of 80 % each, which had suited an earlier TwoScale, made 9 changes, 7
of them for the worse, and 95 % each made 4, all for the worse; `benchmarks/diagnosis.md` has all cases by this rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from gnnsafe.diagnosis.result import Candidate, Verdict

__all__ = ["judge", "overall"]

ERROR = 0.05  # of all candidates together
CEILING = 0.999  # of an AUROC, beyond which its odds say more about the number of nodes than about the score


def judge(candidates: Sequence[Candidate], default: Candidate, trouble: str) -> Verdict:
    """The recommendation for one kind of trouble: the default unless another is clearly better."""
    leads = {candidate.name: _lead(candidate, default, trouble) for candidate in candidates}
    best = max(candidates, key=lambda candidate: (fmean(leads[candidate.name]), candidate is default))
    level = 1 - ERROR / max(1, len(candidates) - 1)
    clear = [candidate for candidate in candidates if _lower_bound(leads[candidate.name], level) > 0]
    chosen = max(clear, key=lambda candidate: fmean(leads[candidate.name]), default=default)
    return Verdict(trouble, chosen, default, best)


def overall(candidates: Sequence[Candidate], default: Candidate, troubles: Sequence[str]) -> tuple[Candidate, str]:
    """Where the trouble is not known: the candidate with the largest least lead over all kinds, and that kind.

    The default's own is zero, so that another is recommended only if it leads in every kind of trouble.
    """

    def least(candidate: Candidate) -> tuple[float, str]:
        return min((fmean(_lead(candidate, default, trouble)), trouble) for trouble in troubles)

    chosen = max(candidates, key=lambda candidate: (least(candidate)[0], candidate is default))
    return chosen, least(chosen)[1]


def _lead(candidate: Candidate, default: Candidate, trouble: str) -> list[float]:
    pairs = zip(candidate.auroc[trouble], default.auroc[trouble], strict=True)
    return [_log_odds(mine) - _log_odds(its) for mine, its in pairs]


def _log_odds(auroc: float) -> float:
    auroc = min(max(auroc, 1 - CEILING), CEILING)
    return math.log(auroc / (1 - auroc))


def _lower_bound(leads: Sequence[float], level: float) -> float:
    """Of the mean; there is none from a single trial."""
    from scipy.stats import t

    if len(leads) < 2:
        return -math.inf
    return fmean(leads) - float(t.ppf(level, len(leads) - 1)) * stdev(leads) / math.sqrt(len(leads))
