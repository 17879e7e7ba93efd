"""Shifts: functions of a graph that return a new one, whose `mask` says which nodes are OOD. Nothing else changes.

    edges       structure (a block model), rewire (the same degrees), perturb_edges (some of them)
    features    feature (blends of two nodes), feature_noise (Gaussian, Bernoulli)
    nodes       label (by class), time (by year), domain (by graph)
    one graph   planted: OOD nodes among the ID nodes of the same graph
    controls    nothing (a few edges less), other_half: no node is OOD, and no method should tell them apart

The same seed gives the same graph bit for bit. What a shift leaves alone is shared with the graph it was given.
"""

from gnnsafe.datasets.shifts.blocks import block_model, structure
from gnnsafe.datasets.shifts.controls import nothing, other_half
from gnnsafe.datasets.shifts.edges import perturb_edges, rewire
from gnnsafe.datasets.shifts.features import feature, feature_noise
from gnnsafe.datasets.shifts.groups import domain, label, time
from gnnsafe.datasets.shifts.planting import planted

__all__ = [
    "block_model",
    "domain",
    "feature",
    "feature_noise",
    "label",
    "nothing",
    "other_half",
    "perturb_edges",
    "planted",
    "rewire",
    "structure",
    "time",
]
