"""From many scored graphs to one alarm, whose false-alarm rate holds for all time.

    with gnnsafe.monitoring.History.open("history.db") as history:
        judged = history.append(gnnsafe.monitoring.observe(detector, monday))
        judged.raised(alpha=0.01)                        # of calm streams at most one in a hundred ever raises it

`martingale` has the bets, `ranks` the p-values that are uniform for all time, `alarm` both for every score watched.
"""

from __future__ import annotations

from gnnsafe.monitoring.accuracy import AccuracyEstimate, estimated_accuracy
from gnnsafe.monitoring.alarm import Alarm
from gnnsafe.monitoring.entry import Entry, Observation, detector_digest, gather, observe
from gnnsafe.monitoring.history import History, Judged
from gnnsafe.monitoring.judgement import Judgement
from gnnsafe.monitoring.martingale import Martingale
from gnnsafe.monitoring.ranks import Ranks

__all__ = [
    "AccuracyEstimate",
    "Alarm",
    "Entry",
    "History",
    "Judged",
    "Judgement",
    "Martingale",
    "Observation",
    "Ranks",
    "detector_digest",
    "estimated_accuracy",
    "gather",
    "observe",
]
