"""A graph of the user's own as a detector knows it: its numbers of classes, and which nodes it has learnt from."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnsafe.detector import Detector
from gnnsafe.errors import InputError, require
from gnnsafe.fitting.classes import renumbered
from gnnsafe.graph import Data, changed
from gnnsafe.held_out import MASKS, KnownNodes
from gnnsafe.prepared import check_graph

__all__ = ["held_out_nodes", "with_known_split"]

LABEL = "add a column 'label'"


def with_known_split(detector: Detector, data: Data) -> Data:
    """The graph that the detector was trained on, with the split and the numbers of classes that it was trained with.

    Test nodes are those of the graph's own split, or all labelled ones, that were neither trained nor validated on.

    Raises:
        InputError: Where the graph is another one, or has no labels.
    """
    data, used = _renumbered(detector, data), detector.used_
    here = KnownNodes.of(data, data.y >= 0)
    if used is None or not (used.taught.same_graph(here) and torch.equal(used.taught.nodes, here.nodes)):
        rule = "be the graph that the detector was trained on"
        raise InputError(f"'GRAPH' must {rule} (got another); give that one, unchanged, and read as it was then")
    train, chosen = used.taught.mask, used.validated or used.calibrated
    val = torch.zeros_like(train) if chosen is None else chosen.within(used.taught)
    return changed(data, train_mask=train, val_mask=val, test_mask=_test(data) & ~train & ~val)


def held_out_nodes(detector: Detector, data: Data) -> tuple[Data, Tensor]:
    """The graph, and its ID nodes used neither for training nor for calibration.

    They are the test nodes of the graph's own split, or all labelled nodes; of the graph that the detector was trained
    on, those that it has not seen. A node of a class that training never saw is none of them.

    Raises:
        InputError: Where the graph has no labels, or no such nodes.
    """
    data = _renumbered(detector, data)
    own, used = _test(data), detector.used_
    here = KnownNodes.of(data, own)
    for known in () if used is None else (used.taught, used.validated, used.calibrated):
        own = own if known is None else own & ~known.within(here)
    rule = "have ID nodes used neither for training nor for calibration"
    require(bool(own.any()), "GRAPH", rule, "none", "give a graph with other labelled nodes of known classes")
    return data, own


def _renumbered(detector: Detector, data: Data) -> Data:
    check_graph(data)
    require(getattr(data, "y", None) is not None, "label", "be given", "a graph without labels", LABEL)
    return data if detector.class_names_ is None else renumbered(data, detector.class_names_)


def _test(data: Data) -> Tensor:
    """The test nodes of the graph's own split; without one, all labelled nodes that are in no other mask."""
    labelled: Tensor = data.y >= 0
    own: Tensor | None = getattr(data, "test_mask", None)
    if own is not None and bool(own.any()):
        return labelled & own
    others = [data[name] for name in MASKS if name in data]
    return labelled & ~torch.stack([torch.zeros_like(labelled), *others]).any(dim=0)
