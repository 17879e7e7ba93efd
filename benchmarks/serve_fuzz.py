"""Ten thousand malformed bodies against a running service: python -m benchmarks.serve_fuzz (about 2 minutes).

Every body is a request that was right once, then broken: bytes changed, cut, doubled, values replaced by others. The
answer must be below 500, one sentence where it is 400 or more, and the process must not grow.

With `--schemathesis [EXAMPLES]` what its OpenAPI document leads to instead, so many examples for each operation (100:
some minutes): no answer is 5xx or one that the document does not know.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

COUNT = 10_000
JSON = {"Content-Type": "application/json"}
BINARY = {"Content-Type": "application/octet-stream"}
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
TABLES = (
    b'--b\r\nContent-Disposition: form-data; name="nodes"; filename="n"\r\n\r\nid,a,b,c,d,e,f,g,h\n1,1,1,1,1,1,1,1,1\n'
    b'2,1,1,1,1,1,1,1,1\n\r\n--b\r\nContent-Disposition: form-data; name="edges"; filename="e"\r\n\r\n'
    b"source,target\n1,2\n\r\n--b--\r\n"
)
ODD: list[Any] = [
    None, True, -1, 0, 2**63, 2**70, 1e308, -0.5, "", "a", "\ud800", "../../etc/passwd", "file:///etc/passwd", [], {},
    [[]], [[[]]], [None], {"id": {}}, "\x00", "9" * 400, [[1, [2]]],
]  # fmt: skip


def right(rng: random.Random) -> tuple[str, dict[str, str], Any]:
    """A request that would be answered."""
    graph = {"x": [[rng.random() for _ in range(8)] for _ in range(3)], "edge_index": [[0, 1], [1, 2]]}
    node = {"id": f"n{rng.randrange(100)}", "features": [rng.random() for _ in range(8)]}
    tensors = [
        {"name": "x", "shape": [3, 8], "datatype": "FP32", "data": graph["x"]},
        {"name": "edge_index", "shape": [2, 2], "datatype": "INT64", "data": [0, 1, 1, 2]},
    ]
    return rng.choice([
        ("/v1/score", JSON, graph),
        ("/v1/graph/changes", JSON, {"nodes": [node], "edges": [["n1", "n2"]], "remove_edges": []}),
        ("/v2/models/blocks/infer", JSON, {"inputs": tensors, "outputs": [{"name": "score"}]}),
        ("/v1/score", FORM, TABLES),
    ])  # fmt: skip


def malformed(rng: random.Random) -> tuple[str, dict[str, str], bytes]:
    """The same, broken in one to three places."""
    path, headers, record = right(rng)
    if not isinstance(record, bytes):
        for _ in range(rng.randrange(3)):
            record = _replaced(rng, record)
        record = json.dumps(record).encode()
    content = bytearray(record)
    for _ in range(rng.randrange(3)):
        place = rng.randrange(len(content) + 1)
        what = rng.randrange(4)
        if what == 0:
            del content[place:]
        elif what == 1:
            content[place:place] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif what == 2:
            del content[place : place + rng.randrange(1, 20)]
        else:
            content += content[place:]
    return path, headers, bytes(content)


def _replaced(rng: random.Random, value: Any) -> Any:
    """The same with one value within it replaced."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        return {**value, key: _replaced(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], _replaced(rng, value[place]), *value[place + 1 :]]
    return rng.choice(ODD)


def schema(examples: int) -> int:
    """schemathesis over all operations, over HTTP."""
    from benchmarks.serve import memory, small_service

    checks = "not_a_server_error,status_code_conformance"
    with small_service() as served:
        url, before = f"http://127.0.0.1:{served.port}/openapi.json", memory(served.pid)
        command = ["run", url, "--checks", checks, "--max-examples", str(examples), "--seed", "1", "--workers", "1"]
        done = subprocess.run([Path(sys.executable).with_name("schemathesis"), *command], check=False)
        print(f"memory before: {before:.0f} MB, after: {memory(served.pid):.0f} MB")
    return done.returncode


def main() -> int:
    """Start a service, send the bodies, and say what came back."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemathesis", metavar="EXAMPLES", type=int, nargs="?", const=100)
    asked = parser.parse_args()
    return bodies() if asked.schemathesis is None else schema(asked.schemathesis)


def bodies() -> int:
    """The malformed ones."""
    from benchmarks.serve import memory, small_service

    rng, statuses, bad = random.Random(1), Counter[int](), 0
    with small_service() as served:
        for number in range(COUNT):
            if number == COUNT // 10:
                before = memory(served.pid)
            path, headers, content = malformed(rng)
            status, answer = served.post(path, content, headers)
            statuses[status] += 1
            sentence = json.loads(answer).get("error", "") if status >= 400 else "none"
            bad += status >= 500 or not sentence or "\n" in sentence
        after = memory(served.pid)
    print(f"{COUNT:,} bodies: {dict(sorted(statuses.items()))}; {bad} answers that are no sentence or ours to blame")
    print(f"memory after {COUNT // 10:,}: {before:.0f} MB, after {COUNT:,}: {after:.0f} MB")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
