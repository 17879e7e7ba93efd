"""The catalogue: every data set by name, with its published counts, its shifts, and how it is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from gnnsafe.datasets import arxiv, pubmed_years, synthetic, twitch
from gnnsafe.datasets.cache import cached_graph
from gnnsafe.datasets.cora import packaged_cora
from gnnsafe.datasets.public import PUBLIC
from gnnsafe.datasets.shifts import domain, time
from gnnsafe.datasets.splits import per_class_split, random_split
from gnnsafe.graph import Data, changed

__all__ = ["CONTROLS", "DATASETS", "SAME_GRAPH", "SINGLE_GRAPH", "Dataset", "Parts", "synthetic_dataset"]

Root = str | os.PathLike[str] | None
Parts = tuple[Data, Data | None, dict[str, Data]]  # ID graph, exposure graph if any, OOD graphs by name
OwnShift = Callable[[Root, int], tuple[Parts, str]]

SINGLE_GRAPH = (
    "structure", "feature", "label", "rewire", "feature-noise", "perturb-edges", "planted-feature", "planted-structure",
)  # fmt: skip
SAME_GRAPH = "time-same-graph"  # ID test nodes are scored in the later graphs, where the new nodes are
CONTROLS = ("control-nothing", "control-half")  # of any data set: in which no node is OOD
TENTHS = "a random split drawn from the seed, 1:1:8"
PER_CLASS = "a random split drawn from the seed, 20 per class/500/1000"


@dataclass(frozen=True)
class Dataset:
    """One data set: what is published of it, and how to get it.

    `graph(root, seed)` is the one graph that the single-graph shifts change; `own` holds, for the shifts that come with
    the data, a function to the ID, exposure and OOD graphs. All give a line on the source and the split besides.
    """

    nodes: int
    edges: int
    features: str
    classes: int
    available: Callable[[Root], bool]
    graph: Callable[[Root, int], tuple[Data, str]] | None = None
    own: Mapping[str, OwnShift] = field(default_factory=dict)
    middle: int | None = None  # the exposure class of the label shift where the paper sets it
    redrawn: Callable[[Root, int], tuple[Data, str]] | None = None  # `graph` with a drawn split, where it has a public

    @property
    def shifts(self) -> tuple[str, ...]:
        """The shifts that it can be put under."""
        return (*(SINGLE_GRAPH if self.graph is not None else ()), *self.own, *CONTROLS)


def _at_hand(name: str) -> Callable[[Root], bool]:
    return lambda root: PUBLIC[name].available(root) is not None


def _cora(root: Root, seed: int) -> tuple[Data, str]:
    data, source = PUBLIC["cora"].load(root, otherwise=lambda: packaged_cora(seed))
    return data, f"{source}, {PER_CLASS if 'package' in source else 'the public split, 140/500/1000'}"


def _cora_at_hand(root: Root) -> bool:
    try:
        return PUBLIC["cora"].available(root) is not None or bool(packaged_cora(0))
    except (OSError, ImportError):
        return False


def _public_split(name: str) -> Callable[[Root, int], tuple[Data, str]]:
    def load(root: Root, seed: int) -> tuple[Data, str]:
        data, source = PUBLIC[name].load(root)
        return data, f"{source}, the public split"

    return load


def _per_class(name: str) -> Callable[[Root, int], tuple[Data, str]]:
    def load(root: Root, seed: int) -> tuple[Data, str]:
        data, source = PUBLIC[name].load(root, otherwise=(lambda: packaged_cora(seed)) if name == "cora" else None)
        return per_class_split(data, seed), f"{source}, {PER_CLASS}"

    return load


def _tenths(name: str) -> Callable[[Root, int], tuple[Data, str]]:
    def load(root: Root, seed: int) -> tuple[Data, str]:
        data, source = PUBLIC[name].load(root)
        return random_split(data, _all(data), seed), f"{source}, {TENTHS}"

    return load


def _all(data: Data) -> torch.Tensor:
    return torch.ones(data.num_nodes, dtype=torch.bool)


def _twitch(root: Root, seed: int) -> tuple[Parts, str]:
    graphs = {name: twitch.country(name).load(root) for name in (twitch.ID, twitch.EXPOSURE, *twitch.OOD)}
    inside, source = graphs[twitch.ID]
    outside = {name: graphs[name][0] for name in twitch.OOD}
    parts = domain(random_split(inside, _all(inside), seed), graphs[twitch.EXPOSURE][0], outside)
    return parts, f"{source} and its siblings, {TENTHS}"


def _twitch_at_hand(root: Root) -> bool:
    return all(twitch.country(name).available(root) for name in (twitch.ID, twitch.EXPOSURE, *twitch.OOD))


def _over_time(data: Data, seed: int, periods: Any) -> Parts:
    data = random_split(data, data.year <= periods.ID, seed)
    parts: Parts = time(data, data.year, id=periods.ID, exposure=periods.EXPOSURE, ood=periods.OOD)
    return parts


def _arxiv(root: Root, seed: int) -> tuple[Parts, str]:
    data, source = arxiv.ARXIV.load(root)
    return _over_time(data, seed, arxiv), f"{source}, {TENTHS} of papers up to {arxiv.ID}"


def _arxiv_topics(root: Root, seed: int) -> tuple[Parts, str]:
    data, source = arxiv.TOPICS.load(root)
    source = f"{source}: ogbn-arxiv's graph, GPT-3.5's guesses as features; {TENTHS} of papers up to {arxiv.ID}"
    return _over_time(data, seed, arxiv), source


def _arxiv_stand_in(root: Root, seed: int) -> tuple[Parts, str]:
    source = f"a generated stand-in of Arxiv's shape, not Arxiv; {TENTHS} of papers up to {arxiv.ID}"
    data = cached_graph(f"arxiv-stand-in-{seed}", [], lambda: arxiv.stand_in(seed))
    return _over_time(data, seed, arxiv), source


def _pubmed_years(root: Root, seed: int) -> tuple[Parts, str]:
    data, source = pubmed_years.pubmed_with_years(root)
    return _over_time(data, seed, pubmed_years), f"{source}, {TENTHS} of papers up to {pubmed_years.ID}"


def _pubmed_years_at_hand(root: Root) -> bool:
    return PUBLIC["pubmed"].available(root) is not None and pubmed_years.years_file(root) is not None


def synthetic_dataset(*, nodes: int = 2000, edges: int = 10_000, features: int = 500, classes: int = 6) -> Dataset:
    """The synthetic data set in a size of your own."""
    make = partial(synthetic.synthetic, nodes=nodes, edges=edges, features=features, classes=classes)

    def graph(root: Root, seed: int) -> tuple[Data, str]:
        data = make(seed)
        return random_split(data, _all(data), seed), f"the seed, {TENTHS}"

    def domains(root: Root, seed: int) -> tuple[Parts, str]:
        seeds = np.random.SeedSequence(seed).generate_state(len(synthetic.DOMAINS)).tolist()
        graphs = {name: make(s, drift=d) for s, (name, d) in zip(seeds, synthetic.DOMAINS.items(), strict=True)}
        inside, exposure = graphs.pop("id"), graphs.pop("exposure")
        return domain(random_split(inside, _all(inside), seed), exposure, graphs), f"the seed, {TENTHS}"

    def years(root: Root, seed: int) -> tuple[Parts, str]:
        return _over_time(make(seed), seed, synthetic), f"the seed, {TENTHS} of nodes up to {synthetic.ID}"

    own = {"domain": domains, **_over_years(years)}
    return Dataset(nodes, edges, str(features), classes, lambda _: True, graph, own)


def _over_years(years: OwnShift) -> dict[str, OwnShift]:
    """The shift over time, and what users of a growing graph ask: new nodes beside the ID test nodes in one graph."""

    def same_graph(root: Root, seed: int) -> tuple[Parts, str]:
        (inside, exposure, later), source = years(root, seed)
        among = {name: changed(graph, test_mask=inside.test_mask) for name, graph in later.items()}
        return (inside, exposure, among), source

    return {"time": years, SAME_GRAPH: same_graph}


DATASETS = {
    "cora": Dataset(2708, 10_556, "1433", 7, _cora_at_hand, _cora, redrawn=_per_class("cora")),
    "citeseer": Dataset(
        3327, 9104, "3703", 6, _at_hand("citeseer"), _public_split("citeseer"), redrawn=_per_class("citeseer")
    ),
    "pubmed": Dataset(
        19_717, 88_648, "500", 3, _at_hand("pubmed"), _public_split("pubmed"), redrawn=_per_class("pubmed")
    ),
    "amazon-photo": Dataset(7650, 238_162, "745", 8, _at_hand("amazon-photo"), _tenths("amazon-photo")),
    "amazon-computers": Dataset(13_752, 491_722, "767", 10, _at_hand("amazon-computers"), _tenths("amazon-computers")),
    "coauthor-cs": Dataset(18_333, 163_788, "6805", 15, _at_hand("coauthor-cs"), _tenths("coauthor-cs"), middle=4),
    "coauthor-physics": Dataset(34_493, 495_924, "8415", 5, _at_hand("coauthor-physics"), _tenths("coauthor-physics")),
    "dblp": Dataset(17_716, 105_734, "1639", 4, _at_hand("dblp"), _tenths("dblp")),
    "twitch": Dataset(9498, 315_774, "3170 or 128", 2, _twitch_at_hand, own={"domain": _twitch}),
    "arxiv": Dataset(
        arxiv.NODES, arxiv.EDGES, "128", 40, lambda root: bool(arxiv.ARXIV.available(root)), own=_over_years(_arxiv)
    ),
    "arxiv-topics": Dataset(
        arxiv.NODES,
        arxiv.EDGES,
        "40",
        40,
        lambda root: bool(arxiv.TOPICS.available(root)),
        own=_over_years(_arxiv_topics),
    ),
    "arxiv-stand-in": Dataset(arxiv.NODES, arxiv.EDGES, "128", 40, lambda _: True, own=_over_years(_arxiv_stand_in)),
    "pubmed-years": Dataset(19_717, 88_648, "500", 3, _pubmed_years_at_hand, own=_over_years(_pubmed_years)),
    "synthetic": synthetic_dataset(),
}
