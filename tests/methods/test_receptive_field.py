"""How far every method reads: `score_new`, which trusts what it says of itself, and batches give what `score` gives."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from gnnsafe import Detector
from gnnsafe.errors import InputError
from gnnsafe.methods import (
    GEBM,
    METHODS,
    ODIN,
    Agreement,
    Consensus,
    DiffusedKNN,
    DirichletEnergy,
    Mahalanobis,
    Method,
    Propagated,
)
from gnnsafe.models import GCN, MLP

PAGE = Path(__file__).parents[2] / "docs" / "extend.md"
ANY = ("odin", "grasp")  # which read the whole graph
WEIGHED = ("two-scale",)  # which weigh by the whole graph what they read of a part: tests/methods/test_two_scale.py
SOFTMAX = ("gkde", "gpn", "gebm", "deep-ensemble", "evidential-probe")
NEITHER = [(name, "multilabel") for name in SOFTMAX]  # which are for softmax alone
TASKS = ("multiclass", "multilabel")
CASES = [
    (name, task) for name in METHODS for task in TASKS if name not in ANY + WEIGHED and (name, task) not in NEITHER
]


def path(nodes: int, *, task: str = "multiclass") -> Data:
    """A path that is walked both ways, with a few directed shortcuts, an edge given twice and a loop."""
    node = torch.arange(nodes)
    there = torch.stack([node[:-1], node[1:]])
    further = torch.tensor([[3, 9, 20, 20, 25, 30], [5, 7, 22, 22, 25, 33]])
    y = node % 3 if task == "multiclass" else torch.stack([node % 2, node % 3 > 0, node % 5 > 1], dim=1).float()
    x = torch.rand(nodes, 8, generator=torch.Generator().manual_seed(0))
    masks = {"train_mask": node % 3 == 0, "val_mask": node % 3 == 1}
    return Data(x=x, edge_index=torch.cat([there, there.flip(0), further], dim=1), y=y, **masks)


def with_other_features(data: Data, node: int) -> tuple[Data, list[int]]:
    new = data.clone()
    new.x[node] = 3 - new.x[node]
    return new, [node]


def with_other_edges(data: Data, node: int) -> tuple[Data, list[int]]:
    """The node has lost its way on, and hears somebody else."""
    new = data.clone()
    gone = (data.edge_index == torch.tensor([[node], [node + 1]])).all(dim=0)
    new.edge_index = torch.cat([data.edge_index[:, ~gone], torch.tensor([[node + 4], [node]])], dim=1)
    return new, [node, node + 1, node + 4]


def detector_of(method: Method, data: Data, *, task: str = "multiclass", model: type[nn.Module] = GCN) -> Detector:
    torch.manual_seed(0)
    return Detector(model(8, 6, 3) if method.needs_model() else None, method, task=task).fit(data)


def few_steps(name: str) -> Method:
    """The method, with so few steps that the furthest of them shows in float32, and hardly trained."""
    method, few = METHODS[name](), ("steps", "diffusion", "epochs")
    return replace(method, **{field.name: 2 for field in fields(method) if field.name in few})


@pytest.mark.filterwarnings("ignore:the model gives the same logits without edges")
@pytest.mark.parametrize(("name", "task"), CASES)
@pytest.mark.parametrize("model", [GCN, MLP])  # the MLP's embeddings reach as far as its logits: there is no slack
def test_new_scores_are_those_of_the_whole_graph(name, task, model):
    data = path(60, task=task)
    for method in (few_steps(name), Propagated(few_steps(name), steps=1)):
        detector = detector_of(method, data, task=task, model=model)
        before = detector.score(data)
        for change in (with_other_features, with_other_edges):
            new, nodes = change(data, 24)
            touched, scores = detector.score_new(new, nodes)
            whole = detector.score(new)
            assert len(touched) < 40
            torch.testing.assert_close(scores, whole[touched], rtol=1e-5, atol=1e-5)
            untouched = torch.ones(60, dtype=torch.bool)
            untouched[touched] = False
            torch.testing.assert_close(before[untouched], whole[untouched], rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the model gives the same logits without edges")
@pytest.mark.parametrize(("name", "task"), [(name, task) for name in METHODS for task in TASKS])
def test_fitted_and_scored_in_batches_as_on_the_whole_graph(name, task):
    """Every method, however far it reads: it is the model that runs on parts of the graph."""
    if (name, task) in NEITHER:
        pytest.skip("for softmax alone")
    data = path(60, task=task)
    for method in (few_steps(name), Propagated(few_steps(name), steps=1)):
        whole, parts = (detector_of(method, data, task=task) for _ in range(2))
        if name == "odin":  # whose steps are by gradients of the whole graph
            with pytest.raises(InputError, match="'batch_size' must be left out for a method that asks for gradients"):
                parts.score(data, batch_size=17)
            continue
        parts.fit(data, batch_size=17)
        for new in (data, with_other_features(data, 24)[0]):
            torch.testing.assert_close(parts.score(new, batch_size=7), whole.score(new), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WEIGHED)
@pytest.mark.filterwarnings("ignore:.*nodes are flagged")  # a third of them are odd
def test_where_all_is_read_it_is_weighed_as_the_whole_graph(name):
    """The receptive field is larger than the graph; another was scored last."""
    data = path(60)
    detector = detector_of(METHODS[name](), data).calibrate(data, mask=torch.arange(60) % 3 == 2)
    new, nodes = with_other_features(data, 24)
    new.x[:20] += 4.0
    expected, flags = detector.score(new), detector.predict(new, false_alarm=0.1)
    detector.score(data)
    found = detector.predict_new(new, nodes, false_alarm=0.1)
    torch.testing.assert_close(found.scores, expected[found.nodes], rtol=1e-5, atol=1e-5)
    assert torch.equal(found.flags, flags[found.nodes])


class Hearing(nn.Module):
    """A user's model, whose logits are a node's features and those of all that are `hops` edges away."""

    def __init__(self, hops: int) -> None:
        super().__init__()
        self.hops, self.weight = hops, nn.Parameter(torch.rand(8, 3, generator=torch.Generator().manual_seed(0)))

    def forward(self, x, edge_index):
        for _ in range(self.hops):
            x = x + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return x @ self.weight


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("ask", ["batches", "new"])
def test_too_few_hops_are_found_where_few_nodes_hear_others(hops, ask):
    """Of 2,000 nodes the last 40 do; nodes that hear only themselves, or nobody, tell nothing."""
    node, chain = torch.arange(2000), torch.arange(1960, 2000)
    x = torch.rand(2000, 8, generator=torch.Generator().manual_seed(1))
    edge_index = torch.cat([torch.stack([chain[:-1], chain[1:]]), torch.stack([node[:1900], node[:1900]])], dim=1)
    data = Data(x=x, edge_index=edge_index, y=node % 3, train_mask=node % 3 == 0, val_mask=node % 3 == 1)
    detector = Detector(Hearing(hops), "energy").fit(data)

    def asked(said: int) -> torch.Tensor:
        if ask == "batches":
            return detector.score(data, batch_size=100, hops=said)
        return detector.score_new(data, node[500:], hops=said, touched=False).scores

    with pytest.raises(InputError, match="'hops' must be as far as the model's receptive field"):
        asked(hops - 1)
    whole = detector.score(data)
    torch.testing.assert_close(asked(hops), whole if ask == "batches" else whole[500:])


class NeighbourEnergy:
    """Base scores for a class that inherits them: those of in-neighbours, a hop away."""

    def base_scores(self, outputs):
        edges = outputs.graph.edges
        return edges.mean() @ METHODS["energy"]().base_scores(outputs)


class Mixed(NeighbourEnergy, METHODS["energy"]):  # type: ignore[misc]
    pass


def test_base_scores_of_another_class_have_not_the_receptive_field_of_the_first():
    assert METHODS["energy"]().base_reach == 0
    assert Mixed().base_reach is None
    data = path(40)
    with pytest.raises(InputError, match="'method' must have a known receptive field"):
        detector_of(Mixed(), data).score_new(data, [7])


def test_new_scores_by_likeness_are_those_of_the_whole_graph():
    data = path(60)
    detector = detector_of(Propagated(METHODS["energy"](), 2, weighting="similarity"), data)
    torch.testing.assert_close(detector.score(data, batch_size=17), detector.score(data), rtol=1e-5, atol=1e-5)
    new, nodes = with_other_edges(data, 24)
    touched, scores = detector.score_new(new, nodes)
    assert len(touched) < 40
    torch.testing.assert_close(scores, detector.score(new)[touched], rtol=1e-5, atol=1e-5)
    explained = detector.explain(new, node=24)
    assert sum(share.share for share in explained.shares) == pytest.approx(explained.score, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        *((name, lambda method: method) for name in ANY),
        *((name, Propagated) for name in ANY + WEIGHED),
        *((name, lambda method: Consensus((method,))) for name in WEIGHED),
    ],
)
def test_new_scores_by_those_that_read_the_whole_graph_are_refused(name, make):
    data = path(40)
    detector = detector_of(make(METHODS[name]()), data).calibrate(data, mask=torch.arange(40) % 3 == 2)
    for ask in (detector.score_new, lambda *given: detector.predict_new(*given, false_alarm=0.1)):
        with pytest.raises(InputError, match=r"'method' must have a known receptive field .*use score\(data\).*$"):
            ask(data, [7])


@pytest.mark.parametrize(
    ("method", "reach"),
    [
        (Agreement(), 1),
        (DiffusedKNN(3, steps=2), 5),
        (DirichletEnergy(2), 3),
        (GEBM(steps=4), 4),
        (Mahalanobis(), 0),
        (Mahalanobis(epsilon=0.1), None),
        (ODIN(epsilon=0.0), 0),
        (Propagated(Propagated(Agreement(), 2), 3), 6),
        (Propagated(ODIN()), None),
    ],
)
def test_reach_by_hand(method, reach):
    assert method.reach() == reach


class TestMethodsOfOnesOwn:
    """The page's Laplace, on a path of 40 nodes of which one has changed."""

    @pytest.fixture
    def code(self) -> str:
        blocks = PAGE.read_text(encoding="utf-8").split("```")
        (code,) = [block for block in blocks if block.startswith("python\n") and "(Method)" in block]
        return code.removeprefix("python\n")

    @staticmethod
    def laplace(code: str) -> Method:
        names: dict = {"__name__": "laplace"}
        exec(code, names)
        return names["Laplace"]()

    def test_the_pages_is_right(self, code):
        data = path(40)
        detector = detector_of(self.laplace(code), data)
        new, nodes = with_other_features(data, 12)
        touched, scores = detector.score_new(new, nodes)
        torch.testing.assert_close(scores, detector.score(new)[touched])
        assert len(touched) < 20

    def test_one_that_does_not_say_is_refused(self, code):
        data = path(40)
        silent = self.laplace(code.replace("    base_reach = 1\n", ""))
        for method in (silent, Propagated(silent)):
            detector = detector_of(method, data)
            with pytest.raises(InputError, match=r"^'method' must have .*Laplace\(\).* such as base_reach = 1$"):
                detector.score_new(data, [12])
            assert detector.score(data).shape == (40,)

    @pytest.mark.parametrize("wrap", [lambda method: method, Propagated])
    def test_one_that_says_it_wrong_is_found_out(self, code, wrap):
        data = path(120)
        detector = detector_of(wrap(self.laplace(code.replace("base_reach = 1", "base_reach = 0"))), data)
        with pytest.raises(InputError, match=r"^'base_reach' must be the method's receptive field .*scores differ by"):
            detector.score_new(data, [12])

    def test_in_a_graph_that_is_read_whole_nobody_is_left_out(self, code):
        data = Data(x=path(40).x[:9], edge_index=path(9).edge_index[:, :16], y=torch.arange(9) % 3)
        data.train_mask = torch.ones(9, dtype=torch.bool)
        detector = detector_of(self.laplace(code.replace("base_reach = 1", "base_reach = 0")), data)
        with pytest.raises(InputError, match=r"^'base_reach' must be"):  # it would name 2 to 6, but 1 and 7 change too
            detector.score_new(data, [4])

    def test_another_score_is_another_receptive_field(self):
        class Wider(METHODS["msp"]):
            def base_scores(self, outputs):
                return super().base_scores(outputs).cumsum(0)

        class Same(METHODS["msp"]):
            def fit(self, outputs, y, mask):
                return self

        class Told(Wider):
            base_reach = 3

        assert [kind().reach() for kind in (Wider, Same, Told)] == [None, 0, 3]

    @pytest.mark.parametrize("given", [-1, 1.5, True, "1"])
    def test_no_number_of_hops(self, given):
        class Own(METHODS["msp"]):
            base_reach = given

        with pytest.raises(InputError, match="'base_reach' must be a whole number >= 0"):
            Own().reach()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("score", r"^'Own\.score' must be left to Method \(got one of its own\); write base_scores\(outputs\), .*$"),
        ("reach", r"^'Own\.reach' must be left to Method \(got one of its own\); say base_reach, .*$"),
        ("propagation", r"^'Own\.propagation' must be a value or a property \(got a function\); put @property before"),
        ("base_reach", r"^'Own\.base_reach' must be a value or a property \(got a function\); put @property before"),
    ],
)
def test_what_a_class_may_not_define(name, message):
    class Mixed:
        pass

    setattr(Mixed, name, lambda self, *given: None)
    for bases, names in (((Method,), {name: getattr(Mixed, name)}), ((Mixed, METHODS["msp"]), {})):
        with pytest.raises(InputError, match=message):
            type(Method)("Own", bases, names)


def test_a_propagation_that_is_none():
    class Own(METHODS["msp"]):
        propagation = 2

    with pytest.raises(InputError, match=r"^'Own\.propagation' must be a Propagation such as .* \(got 2\)$"):
        detector_of(Own(), path(40)).score(path(40))
