"""Where TwoScale's rates fail: python -m benchmarks.few_features, a few seconds.

Three classes of points in six dimensions, neighbours drawn within a class. In the graph that is scored, a share of
nodes, scattered, has all six features moved. Printed: the share of ID nodes that is flagged at 5 % asked.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch_geometric.data import Data

import gnnsafe

NODES, DEGREE, ASKED = 3000, 4, 0.05
TROUBLE = ((0.0, 0.0), (6.0, 0.02), (2.0, 0.1), (3.0, 0.1), (6.0, 0.1))  # by how much, and how many nodes


def main() -> None:
    """Print a table."""
    warnings.simplefilter("ignore")  # of more flags than the rate allows: what is shown
    names = [f"{share:.0%} moved by {move:g}" for move, share in TROUBLE]
    print(f"| edges, method | {' | '.join(names)} |\n|---|{'--:|' * len(names)}")
    for undirected in (False, True):
        known = graph(1, 0.0, 0.0, undirected=undirected)
        model = gnnsafe.models.GCN(6, 64, 3)
        gnnsafe.train(model, known, objective=gnnsafe.CrossEntropy())
        for method in ("two-scale", "gnnsafe"):
            detector = gnnsafe.Detector(model, method).fit(known).calibrate(known)
            shares = [flagged(detector, graph(2, *trouble, undirected=undirected)) for trouble in TROUBLE]
            cells = " | ".join(f"{share:.1%}" for share in shares)
            print(f"| {'both ways' if undirected else 'one way'}, {method} | {cells} |", flush=True)


def flagged(detector: gnnsafe.Detector, data: Data) -> float:
    """The share of ID nodes, none of them a training node, that is flagged."""
    others = ~data.odd & ~data.train_mask
    return detector.predict(data, false_alarm=ASKED)[others].float().mean().item()


def graph(seed: int, move: float, share: float, *, undirected: bool) -> Data:
    """The same nodes for every seed; edges and odd nodes are drawn from it."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng(seed)
    y = fixed.integers(0, 3, NODES)
    odd = rng.random(NODES) < share
    x = fixed.normal(size=(NODES, 6)) + 2 * np.eye(6)[y] + move * odd[:, None]
    source = rng.integers(0, NODES, DEGREE * NODES)
    members = [np.flatnonzero(y == label) for label in range(3)]
    target = np.array([rng.choice(members[y[node]]) for node in source])
    edges = np.stack([source, target])
    edges = np.concatenate([edges, edges[::-1]], axis=1) if undirected else edges
    data = Data(x=torch.tensor(x).float(), edge_index=torch.tensor(edges), y=torch.tensor(y), odd=torch.tensor(odd))
    place = torch.tensor(fixed.permutation(NODES)) / NODES
    data.train_mask, data.val_mask, data.test_mask = place < 0.6, (place >= 0.6) & (place < 0.8), place >= 0.8
    return data


if __name__ == "__main__":
    main()
