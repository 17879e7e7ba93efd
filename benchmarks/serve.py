"""The service under load, on loopback: python -m benchmarks.serve [--seconds 60] [--requests 20000], into serve.md.

Changes of ten nodes of a kept graph, Cora's and two of a million nodes, over HTTP and in process; the memory of the
process over many requests; a restart. Clients are threads of this process, which shares the cores with the service.
`--parts load` (2 min), `large` (4 min), `memory` (3 min) and `restart` (2 min) are measured one by one where they are
asked for; the page has the last figures of each.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gnnsafe
from gnnsafe.evolving import Changes, ScoredGraph
from gnnsafe.models import GCN

CLIENTS = 8
CHANGED = 10
LARGE = 1000  # nodes along each side of the large graph
WANTED = {"overhead": 5.0, "large": 300.0}  # milliseconds
HERE = Path(__file__).parent
TABLE = ["| what | p50 ms | p99 ms | per second | errors |", "|---|---|---|---|---|"]
TITLES = {
    "load": "Cora, 10 changed nodes a request",
    "large": "1e6 nodes, 10 changed nodes a request",
    "memory": "Memory",
    "restart": "A restart after many changes",
}


class Served:
    """A service in a process of its own."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.port = pid, port
        self._own = threading.local()

    def post(self, path: str, content: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body; each thread keeps its connection."""
        return self._asked("POST", path, content, headers or {"Content-Type": "application/json"})

    def get(self, path: str) -> tuple[int, bytes]:
        """The same without a body."""
        return self._asked("GET", path, None, {})

    def _asked(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


@contextmanager
def served(detector: Path, graph: Path) -> Iterator[Served]:
    """`gnnsafe serve` with a kept graph."""
    command = [sys.executable, "-m", "gnnsafe", "serve", f"blocks={detector}", "--graph", str(graph), "--port", "0"]
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(command, stderr=told, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"})
        try:
            yield Served(process.pid, _port(process, told))
        finally:
            process.terminate()
            process.wait()


def _port(process: Any, told: Any) -> int:
    while process.poll() is None:
        told.seek(0)
        for line in told:
            if '"listening"' in line:
                return int(json.loads(line)["url"].rstrip("/").rpartition(":")[2])
        time.sleep(0.2)
    told.seek(0)
    raise RuntimeError(told.read())


def small_files(folder: Path) -> tuple[Path, Path, int]:
    """A detector and a graph of 100 nodes and 8 features in files, and how many edges it has."""
    data = _grid(10, 8)
    _fitted(data, 8).save(folder / "detector")
    _write(folder / "graph.npz", data, ids=[f"n{number}" for number in range(100)])
    return folder / "detector", folder / "graph.npz", data.edge_index.shape[1]


@contextmanager
def small_service() -> Iterator[Served]:
    """With that graph."""
    with tempfile.TemporaryDirectory() as name, served(*small_files(Path(name))[:2]) as service:
        yield service


def memory(pid: int) -> float:
    """Resident, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _grid(side: int, features: int) -> Any:
    """Nodes of a square lattice, each joined to four both ways; features say the quarter that they lie in."""
    from torch_geometric.data import Data

    numbers = np.arange(side * side).reshape(side, side)
    pairs = [(numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:])]
    one_way = np.concatenate([np.stack([a.ravel(), b.ravel()]) for a, b in pairs], axis=1)
    y = (numbers // (side * side // 2)).ravel() * 2 + (numbers % side // (side // 2)).ravel()
    x = np.random.default_rng(0).random((side * side, features), np.float32)
    x[np.arange(side * side), y] += 1
    place = torch.from_numpy(np.random.default_rng(1).random(side * side))
    edge_index = torch.from_numpy(np.concatenate([one_way, one_way[::-1]], axis=1))
    masks = {"train_mask": place < 0.3, "val_mask": place > 0.6}
    return Data(x=torch.from_numpy(x), edge_index=edge_index, y=torch.from_numpy(y), **masks)


def _random(nodes: int, features: int, degree: int) -> Any:
    from torch_geometric.data import Data

    rng = np.random.default_rng(0)
    ends = rng.integers(nodes, size=(2, nodes * degree))
    return Data(x=torch.from_numpy(rng.random((nodes, features), np.float32)), edge_index=torch.from_numpy(ends))


def _fitted(data: Any, features: int) -> gnnsafe.Detector:
    torch.manual_seed(0)
    model = GCN(features, 32, int(data.y.max()) + 1)
    gnnsafe.train(model, data, objective=gnnsafe.CrossEntropy(), epochs=50)
    return gnnsafe.Detector(model, "gnnsafe").fit(data).calibrate(data)


def _write(file: Path, data: Any, ids: list[str] | None = None) -> None:
    x = data.x.to_dense() if data.x.layout != torch.strided else data.x
    more = {} if ids is None else {"node_id": np.array(ids)}
    np.savez(file, x=x.numpy(), edge_index=data.edge_index.numpy(), **more)


def _changes(x: Any, rng: Any) -> dict[str, Any]:
    """Ten nodes get the features of others, and two edges come."""
    nodes = rng.choice(len(x), CHANGED, replace=False).tolist()
    features = x[rng.choice(len(x), CHANGED)].tolist()
    changed = [{"id": node, "features": row} for node, row in zip(nodes, features, strict=True)]
    return {"nodes": changed, "edges": [nodes[:2], nodes[2:4]]}


def _timed(work: Callable[[int], Any], until: float, most: int = 10**9) -> list[float]:
    taken = []
    while time.perf_counter() < until and len(taken) < most:
        begun = time.perf_counter()
        work(len(taken))
        taken.append(1000 * (time.perf_counter() - begun))
    return taken


def _by_turns(first: Callable[[int], Any], second: Callable[[int], Any], seconds: float) -> list[list[float]]:
    """Ten of one, then ten of the other: what the machine does beside meets both alike."""
    taken: list[list[float]] = [[], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for work, found in zip((first, second), taken, strict=True):
            found += _timed(work, end + seconds, 10)
    return [found[10:] or found for found in taken]  # the first are slower


def _told(taken: list[float]) -> tuple[float, float]:
    return float(np.percentile(taken, 50)), float(np.percentile(taken, 99))


def cora(seconds: float) -> Iterator[str]:
    """Cora, changes of ten nodes: in process, by one client, by eight, and the memory meanwhile."""
    data = gnnsafe.load_benchmark("cora", shift="feature").id
    data.x = data.x.to_dense() if data.x.layout != torch.strided else data.x
    detector, x, errors = _fitted(data, data.num_features), data.x.numpy(), []
    rng = np.random.default_rng(2)
    bodies = [json.dumps(_changes(x, rng)).encode() for _ in range(200)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        detector.save(folder / "detector")
        _write(folder / "graph.npz", data)
        kept = ScoredGraph(detector, data, journal=folder / "own.journal")
        work = lambda number: kept.change(Changes.of(json.loads(bodies[number % 200]), x.shape[1]))  # noqa: E731
        with served(folder / "detector", folder / "graph.npz") as service:

            def ask(number: int) -> None:
                status, _ = service.post("/v1/graph/changes", bodies[number % 200])
                if status != 200:
                    errors.append(status)

            inside, one = map(_told, _by_turns(work, ask, seconds / 2))
            every: list[float] = []
            end = time.perf_counter() + seconds
            threads = [threading.Thread(target=lambda: every.extend(_timed(ask, end))) for _ in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            eight = _told(every)
    overhead = one[0] - inside[0]
    verdict = "held" if overhead < WANTED["overhead"] and not errors else "missed"
    yield from [
        *TABLE,
        f"| Cora, 10 changed nodes, in process | {inside[0]:.1f} | {inside[1]:.1f} | {1000 / inside[0]:.0f} | – |",
        f"| the same over HTTP, 1 client | {one[0]:.1f} | {one[1]:.1f} | {1000 / one[0]:.0f} | {len(errors)} |",
        f"| the same over HTTP, {CLIENTS} clients, {seconds:.0f} s | {eight[0]:.1f} | {eight[1]:.1f} | "
        f"{len(every) / seconds:.0f} | {len(errors)} |",
        "",
        f"Overhead of a request at p50, one client: {overhead:.1f} ms "
        f"(wanted: under {WANTED['overhead']:.0f}; {verdict}).",
    ]


def flat(requests: int) -> Iterator[str]:
    """Memory over many requests: graphs that are scored, and changes."""
    graph = json.dumps(
        {"x": np.random.default_rng(0).random((20, 8)).tolist(), "edge_index": [[0, 1], [1, 2]]}
    ).encode()
    change = json.dumps({"nodes": [{"id": "n1", "features": [0.5] * 8}], "edges": []}).encode()
    grown, failed = [], 0
    with small_service() as service:
        for number in range(requests):
            path, content = ("/v1/score", graph) if number % 2 else ("/v1/graph/changes", change)
            failed += service.post(path, content)[0] != 200
            if number % max(1, requests // 10) == requests // 10 - 1:
                grown.append(memory(service.pid))
    told = ", ".join(f"{one:.0f}" for one in grown)
    yield f"Memory of the service over {requests:,} requests, ten readings in MB: {told}; {failed} errors."


def restart(requests: int) -> Iterator[str]:
    """The files beside the graph after many large changes, and how long the service takes to be back."""
    body = json.dumps({"nodes": [{"id": f"n{one}", "features": [0.123456789] * 8} for one in range(100)]}).encode()
    with tempfile.TemporaryDirectory() as name:
        files = small_files(Path(name))
        with served(*files[:2]) as service:
            errors = sum(service.post("/v1/graph/changes", body)[0] != 200 for _ in range(requests))
            time.sleep(40)  # a journal is looked at every half a minute
        kept = {file.name: file.stat().st_size / 1e6 for file in Path(name).glob("*journal*")}
        begun = time.perf_counter()
        with served(*files[:2]) as service:
            back = time.perf_counter() - begun
            version = json.loads(service.get("/v1/graph")[1])["version"]
    sent = requests * len(body) / 1e6
    yield (
        f"{requests:,} changes of 100 nodes, {sent:.0f} MB of JSON ({errors} errors): beside the graph lie "
        f"{sum(kept.values()):.1f} MB ({', '.join(sorted(kept))}); started again in {back:.1f} s, at version "
        f"{version:,}."
    )


def _changed(service: Served, bodies: list[bytes], touched: list[int], errors: list[int], number: int) -> None:
    status, answer = service.post("/v1/graph/changes", bodies[number % len(bodies)])
    errors += [status] * (status != 200)
    touched.append(json.loads(answer).get("nodes", 0))


def large(seconds: float) -> Iterator[str]:
    """A kept graph of 1e6 nodes: ten changed nodes."""
    detector = _fitted(_grid(60, 16), 16)
    yield from TABLE
    graphs = {"a lattice, 4e6 edges": _grid(LARGE, 16), "random, 3 edges per node": _random(LARGE**2, 16, 3)}
    for name, data in graphs.items():
        rng = np.random.default_rng(3)
        bodies = [json.dumps(_changes(data.x.numpy(), rng)).encode() for _ in range(300)]
        with tempfile.TemporaryDirectory() as place:
            folder, touched, errors = Path(place), list[int](), list[int]()
            detector.save(folder / "detector")
            _write(folder / "graph.npz", data)
            with served(folder / "detector", folder / "graph.npz") as service:
                ask = partial(_changed, service, bodies, touched, errors)
                ask(0)
                taken = _timed(ask, time.perf_counter() + seconds, 300)
                used = memory(service.pid)
        p50, p99 = _told(taken)
        yield (
            f"| 1e6 nodes, {name}: 10 changed nodes touch {np.median(touched):,.0f} | {p50:.1f} | {p99:.1f} | "
            f"{1000 / p50:.0f} | {len(errors)} |"
        )
        print(f"{name}: {len(taken)} requests, {used:.0f} MB", file=sys.stderr)


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    "load": lambda asked: cora(asked.seconds),
    "large": lambda asked: large(asked.seconds),
    "memory": lambda asked: flat(asked.requests),
    "restart": lambda asked: restart(asked.requests),
}


def main() -> None:
    """Measure, and write serve.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in asked.parts.split(","):
        load = os.getloadavg()[0]
        busy = " (busy with other work: figures are too high)" if load > 1 else ""
        about = f"{asked.seconds:g} s, {asked.requests:,} requests; load average when it began {load:.1f}{busy}"
        _save(name, [*PARTS[name](asked), f"*{about}.*"])


def _save(name: str, lines: list[str]) -> None:
    """One part's lines among those that were measured before."""
    records = Path("results/serve.json")
    records.parent.mkdir(exist_ok=True)
    known = json.loads(records.read_text(encoding="utf-8")) if records.exists() else {}
    known[name] = lines
    records.write_text(json.dumps(known, indent=1), encoding="utf-8")
    machine = (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    )
    text = [
        "# The service under load", "",
        f"Made by `python -m benchmarks.serve` on {machine}; clients and service share the cores, over loopback, each "
        "change is on the disk before its answer. Malformed bodies and kills: [serve_faults.md](serve_faults.md).",
    ]  # fmt: skip
    for part in PARTS:
        text += ["", f"## {TITLES[part]}", "", *known.get(part, ["Not measured."])]
    (HERE / "serve.md").write_text("\n".join([*text, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
