"""What it costs that large tensors are fresh pages each time: python -m benchmarks.allocator

One training step of GPN's flows on Coauthor-CS's shape (18,333 nodes, 15 classes), one thread, each way in a process of
its own: as glibc is, and as `gnnsafe bench` sets it (`gnnsafe.bench.cores.keep_freed_memory`).
"""

from __future__ import annotations

import resource
import subprocess
import sys

ROUNDS = 5


def main() -> None:
    """Print a line for each way."""
    for way in ("as it is", "kept"):
        subprocess.run([sys.executable, "-m", "benchmarks.allocator", way], check=True)


def measured(way: str) -> None:
    """CPU seconds, the kernel's share of them and page faults of one step."""
    import torch

    from gnnsafe.bench.cores import keep_freed_memory
    from gnnsafe.models.radial import RadialFlows

    torch.set_num_threads(1)
    if way == "kept":
        keep_freed_memory()
    flows, points = RadialFlows(15, 16, 10), torch.randn(18_333, 16, requires_grad=True)
    for step in range(ROUNDS + 1):
        if step == 1:  # the first warms up
            before = resource.getrusage(resource.RUSAGE_SELF)
        flows(points).sum().backward()
    after = resource.getrusage(resource.RUSAGE_SELF)
    system, user = after.ru_stime - before.ru_stime, after.ru_utime - before.ru_utime
    faults = (after.ru_minflt - before.ru_minflt) // ROUNDS
    print(
        f"{way:>8}: {(system + user) / ROUNDS:.3f} s CPU, {system / ROUNDS:.3f} s of it the kernel's, {faults:,} faults"
    )


if __name__ == "__main__":
    measured(sys.argv[1]) if len(sys.argv) > 1 else main()
