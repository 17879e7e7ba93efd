"""One detector, many threads, different graphs: what they get is what one after the other would get, to the bit."""

from __future__ import annotations

import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from gnnsafe import CrossEntropy, Detector, train
from gnnsafe.methods import METHODS
from gnnsafe.models import GCN
from gnnsafe.outputs import Penultimate

THREADS, CALLS, GRAPHS = 8, 100, 6


class Somebodys(nn.Module):
    """A model that is not one of gnnsafe.models, in training mode: dropout and BatchNorm would show."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.penultimate = nn.Linear(6, 8), nn.BatchNorm1d(8), Penultimate()
        self.dropout, self.last = nn.Dropout(0.5), nn.Linear(8, 3)

    def forward(self, x, edge_index):
        hidden = self.penultimate(self.norm(self.first(x)).relu())
        logits = self.last(self.dropout(hidden))
        return logits.index_add(0, edge_index[1], logits[edge_index[0]])


def graph(seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    nodes = 30 + 5 * seed
    node = torch.arange(nodes)
    edges = torch.randint(nodes, (2, 3 * nodes), generator=generator)
    masks = {"train_mask": node % 2 == 0, "val_mask": node % 4 == 1}
    return Data(x=torch.rand(nodes, 6, generator=generator), edge_index=edges, y=node % 3, **masks)


@pytest.mark.parametrize("make", [lambda: GCN(6, 8, 3), Somebodys], ids=["ours", "somebody's"])
def test_threads_get_what_one_after_the_other_would(make):
    torch.manual_seed(0)
    model = make().train()
    detectors = [Detector(model, name).fit(graph(0)) for name in METHODS]
    graphs = [graph(seed) for seed in range(1, GRAPHS + 1)]
    alone = [[detector.score(data) for data in graphs] for detector in detectors]
    statistics = {name: value.clone() for name, value in model.state_dict().items()}
    together = Barrier(THREADS)

    def wrong(thread: int) -> list[tuple[int, int]]:
        """Which method on which graph gave something else: half of the calls are everybody's on one detector."""
        together.wait()
        calls = [
            ((call // 2 + thread * (call % 2)) % len(detectors), (thread + call) % GRAPHS) for call in range(CALLS)
        ]
        return [(m, g) for m, g in calls if not torch.equal(detectors[m].score(graphs[g]), alone[m][g])]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(wrong, range(THREADS))) == [[]] * THREADS
    finally:
        sys.setswitchinterval(before)
    assert all(torch.equal(value, statistics[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks nothing")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_process_that_is_forked_while_threads_score_and_train():
    """A model, or torch's random numbers, that another thread had in use would be lost to the child for ever."""
    done, data = Event(), graph(1)
    detectors = [Detector(Somebodys().train(), name).fit(graph(0)) for name in ("gnnsafe", "react")]
    expected = [detector.score(data) for detector in detectors]

    def busy(number: int) -> None:
        model = GCN(6, 8, 3)
        while not done.is_set():
            if number:
                detectors[number % 2].score(data)
            else:
                train(model, data, objective=CrossEntropy(), epochs=3)

    def child() -> None:
        assert all(
            torch.equal(detector.score(data), scores) for detector, scores in zip(detectors, expected, strict=True)
        )
        assert all(module.training for detector in detectors for module in detector.classifier.model.modules())
        GCN(6, 8, 3)  # draws; torch itself may refuse gradients in a child

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(busy, number) for number in range(4)]
        try:
            for _ in range(3):
                process = multiprocessing.get_context("fork").Process(target=child)
                process.start()
                process.join(60)
                code = process.exitcode
                process.kill()
                assert code == 0
        finally:
            done.set()
        assert [task.result() for task in tasks] == [None] * 4
