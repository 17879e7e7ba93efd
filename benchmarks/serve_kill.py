"""A running service, killed while it takes changes: python -m benchmarks.serve_kill [--times 50].

`gnnsafe serve` keeps a graph; four clients send changes, a node with an edge each; after a while the process gets
SIGKILL, and the same command starts again. At the end every node that was acknowledged is there, each with its edge.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.serve import Served, served, small_files

CLIENTS = 4


def _sent(service: Served, life: int, client: int, acknowledged: set[str]) -> None:
    """Changes until the service is gone."""
    for number in range(10**6):
        name = f"k{life}-{client}-{number}"
        record = {"nodes": [{"id": name, "features": [1.0] * 8}], "edges": [[name, "n1"]]}
        try:
            status, _ = service.post("/v1/graph/changes", json.dumps(record).encode())
        except (OSError, http.client.HTTPException):
            return
        if status == 200:
            acknowledged.add(name)


def _killed(service: Served, life: int, acknowledged: set[str], seconds: float) -> None:
    clients = [threading.Thread(target=_sent, args=(service, life, one, acknowledged)) for one in range(CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(seconds)
    os.kill(service.pid, signal.SIGKILL)
    for client in clients:
        client.join()


def _there(service: Served) -> tuple[set[str], dict[str, Any]]:
    names, offset = set[str](), 0
    while page := json.loads(service.get(f"/v1/nodes?search=k&limit=1000&offset={offset}")[1])["nodes"]:
        names |= {row["id"] for row in page}
        offset += len(page)
    return names, json.loads(service.get("/v1/graph")[1])


def main() -> int:
    """Kill it, and say what is left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=50)
    times = parser.parse_args().times
    rng, acknowledged = random.Random(0), set[str]()
    with tempfile.TemporaryDirectory() as name:
        detector, graph, edges = small_files(Path(name))
        for life in range(times):
            with served(detector, graph) as service:
                _killed(service, life, acknowledged, 0.2 + rng.random())
        with served(detector, graph) as service:
            there, about = _there(service)
    lost, unasked = acknowledged - there, there - acknowledged
    whole = about["edges"] == edges + len(there)
    print(
        f"{times} kills: {len(acknowledged):,} changes acknowledged, {len(lost)} lost; {len(unasked)} made and not yet "
        f"acknowledged (at most {CLIENTS} a kill); {'no' if whole else 'some'} change half made"
    )
    return int(bool(lost) or len(unasked) > CLIENTS * times or not whole)


if __name__ == "__main__":
    sys.exit(main())
