"""Peak memory and growth, each in a process of its own: `python -m benchmarks.memory plain graph.pt`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks import cases

EPOCHS, HIDDEN = 3, 64


def used(line: str = "VmRSS") -> float:
    """This process's memory in bytes; `VmHWM` is the most that it ever had (getrusage would count its parent's)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024.0 * next(int(entry.split()[1]) for entry in lines if entry.startswith(line))


def child(*arguments: str) -> dict[str, Any]:
    """What a process of its own reports."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.memory", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    result: dict[str, Any] = json.loads(output.stdout.splitlines()[-1])
    return result


def peaks(name: str) -> dict[str, dict[str, float]]:
    """Peak memory of some training steps on a graph: plain, and ours; in all, and beyond the imported packages.

    Each process imports what its way needs: ours, given its tensors, neither PyG nor scikit-learn.
    """
    case, results = cases.case(name), {}
    with tempfile.TemporaryDirectory() as folder:
        for way, graph in (("plain", case.plain_data), ("ours", case.data)):
            path = Path(folder) / f"{way}.pt"
            torch.save({"classes": case.classes, **graph.to_dict()}, path)
            results[way] = child(way, str(path))
    return results


def growth(edges: int, *, train: bool) -> dict[str, float]:
    """Seconds and bytes of propagation, and where asked of a training step, on a graph with so many edges."""
    return child("growth", str(edges), *(["train"] if train else []))


def _trained(way: str, path: str) -> dict[str, float]:
    from types import SimpleNamespace

    import gnnsafe
    from gnnsafe.models import GCN

    if way == "plain":
        from benchmarks import plain

    before = used()
    data: Any = SimpleNamespace(**torch.load(path, weights_only=True))
    if way == "plain":
        training = plain.Training(plain.GCN(data.x.shape[1], data.classes), data)
        for _ in range(EPOCHS):
            training.step()
    else:
        model = GCN(data.x.shape[1], HIDDEN, data.classes)
        gnnsafe.train(model, data, objective=gnnsafe.CrossEntropy(), epochs=EPOCHS)
    return {"peak": used("VmHWM"), "beyond imports": used("VmHWM") - before}


def _grown(edges: int, *, train: bool) -> dict[str, float]:
    from types import SimpleNamespace

    import gnnsafe
    from gnnsafe.edges import Edges
    from gnnsafe.models import GCN

    nodes = max(edges // 15, 100)
    graph, scores = cases.random_edges(nodes, edges).long(), torch.rand(nodes)
    gnnsafe.propagate(scores[:4], graph[:, :0])  # what is loaded on first use
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the most from here on
    before, start = used(), perf_counter()
    gnnsafe.propagate(scores, graph)
    first, memory = perf_counter() - start, used("VmHWM") - before
    prepared = Edges(graph, nodes)
    times = []
    for _ in range(4):
        start = perf_counter()
        gnnsafe.propagate(scores, prepared)
        times.append(perf_counter() - start)
    result = {"first": first, "propagation": min(times), "memory": memory}
    if train:
        mask = torch.arange(nodes) % 10 == 0
        data = SimpleNamespace(x=torch.randn(nodes, 32), edge_index=graph, y=torch.arange(nodes) % 8,
                               train_mask=mask, val_mask=mask.roll(1))  # fmt: skip
        stamps: list[float] = []

        class Timed(gnnsafe.CrossEntropy):
            def begin_epoch(self, model: Any, epoch: int) -> None:
                stamps.append(perf_counter())

        gnnsafe.train(GCN(32, HIDDEN, 8), data, objective=Timed(), epochs=4)
        result["training step"] = min(end - start for start, end in pairwise(stamps[1:]))
    return result


if __name__ == "__main__":
    torch.set_num_threads(2)
    kind, *rest = sys.argv[1:]
    print(json.dumps(_grown(int(rest[0]), train="train" in rest) if kind == "growth" else _trained(kind, rest[0])))
