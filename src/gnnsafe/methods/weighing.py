"""How much each evidence counts in a graph, by what the graph as a whole looks like: are its odd nodes scattered?

Evidence (`gnnsafe.methods.evidence`: E of every node, 1 on average for an ID node) is of three kinds: the node is
unlike its neighbours, it is unknown to the model, its surroundings are odd. Shares of rare nodes say which count:

q = max(0, share of nodes with E > −log 0.1, less the usual share), for each evidence: 0 where it says nothing about
    this graph. Usual is the share in the graph that was fitted and, but for features by themselves, at most 0.1 and a
    standard error of such a share among the calibration nodes (that graph may have odd nodes of its own). In a graph of
    fewer nodes than there are calibration nodes chance is taken off, too: twice by how much larger the standard error
    of a share of 0.1 is there;
x = the larger of the largest q of evidence that asks no model, but of features by themselves (new classes have some
    that are a little off), and of the share of nodes, beyond the usual one, that are not heard, as their features are
    far off: OOD nodes scattered among ID nodes have it. They make those around them look unknown, too, and so explain
    as much of that, in regions up to four times as much;
y = max(0, the largest q of evidence that the node is unknown − 4 x): OOD nodes that stand together have it, and not x;
t = (0.005 + y)² / ((0.005 + y)² + (0.005 + x)²): 0 where odd nodes are scattered, 1 where they stand in regions (or are
    the graph), ½ where nothing shows;
u = (0.005 + r) / (0.005 + the largest r), r = q of evidence that the node is unlike its neighbours, max(0, q − x) of
    evidence that it is unknown, both together scaled to Σ u² = their number;
u', v = (0.005 + q) / (0.005 + the largest q), of evidence that it is unknown, of the surroundings';
o = the larger of a = sigmoid((the largest q of the first kind − 0.48) / 0.03) and
    b = sigmoid((the largest q of the second kind − 4 x − 0.25) / 0.05): how far the graph as a whole is odd, 0 to 1;

w = ¼ + 1¾ · the larger of t and o;

z = (1 − t) Σ_own u (E − Ē) + t Σ_unknown u' (E − Ē) + w Σ_surroundings v (E − Ē), Ē the mean of E over the calibration
    nodes;
score = −log p(z) + 4 o, p among the calibration nodes' z by the same weights, continued beyond them;
p-values compare −log p(z' − δ), z' = z with w' = w g for w, so that own evidence alone decides unless g, the larger of
    a and b sigmoid((0.1 − s) / 0.01), says that hardly a usual node is left, s the share of nodes whose own evidence (z
    with w = 0) is below the calibration nodes' median: ½ in a graph as it was; δ = (1 − g) max(0, Q − the calibration
    nodes' Q), Q the quantile ½ − ¼ t of z';
in z' evidence above its mean, of what reads neighbours, counts 1 − k ¾ A² / (A² + e²) times: e = max(0, z' − δ − the
    calibration nodes' quantile 0.9) is how odd the node is, A the mean e of its in-neighbours, who may be the reason,
    k = (1 − g) (1 − t) x / (0.005 + x), and 0 where far nodes are not heard.

So evidence that finds nothing in a graph adds little noise to what another finds there (u, v); what the surroundings
say counts little where odd nodes are scattered, and most where they stand together (where it does not matter whether a
node is unlike its neighbours) or the graph as a whole is odd, which also lifts all its nodes by 4 o. p-values say how a
node stands among ID nodes under the same weights, without that lift. Unless no usual node is left in the graph they are
also without what surroundings say, which ID nodes beside OOD nodes share with them, without what the graph's usual
nodes say that trouble beside them has added to all (δ), and without much of what odder in-neighbours may explain.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gnnsafe.methods.spread import Spread, spread_of

__all__ = [
    "Weights",
    "added",
    "counted",
    "counted_excess",
    "excess",
    "explained",
    "explaining",
    "none_left",
    "oddness",
    "surroundings_weight",
    "usual_shares",
]

RARE = 0.1  # a p-value below which a node is rare
FLOOR = 0.005  # what evidence without any excess counts for
LEAST, MOST = 0.25, 2.0  # what surroundings count for
UNLIKE, UNKNOWN = (0.48, 0.03), (0.25, 0.05)  # the excess at which a graph is half odd, and the width of that step
EXPLAINED = 4  # times the excess that asks no model: so much of unknown nodes may be due to scattered ones
MOST_EXPLAINED = 0.75  # of evidence against a node, by in-neighbours that are far odder than it is
USUAL = (0.1, 0.01)  # the share of usual nodes at which a graph is half odd throughout, and the width of that step


def usual_shares(evidence: Tensor, known: Tensor, alone: Tensor) -> Tensor:
    """The share of rare nodes to expect of each evidence: that of the graph fitted, as far as chance may explain it.

    Args:
        evidence: E of that graph's nodes, [nodes, parts], NaN where it says nothing.
        known: E of the calibration nodes, whose number says how far a share of 0.1 is off by chance.
        alone: A mask of evidence whose share is taken as it is: that of features by themselves, [parts].

    >>> usual_shares(torch.tensor([[0.0], [0.0], [0.0], [9.0]]), torch.zeros(9, 1), torch.tensor([False])).tolist()
    [0.2]
    """
    said = (~known.isnan()).sum(dim=0).clamp(min=1)
    shares = torch.where(evidence.isnan().all(dim=0), RARE, _rare_shares(counted(evidence)))
    most = RARE + (RARE * (1 - RARE) / said.double()).sqrt()
    return torch.where(alone, shares, torch.minimum(shares, most))


def excess(evidence: Tensor, usual: Tensor, known: int) -> Tensor:
    """q of each evidence beyond the usual shares: E [nodes, parts], NaN where it says nothing.

    >>> excess(torch.tensor([[0.0], [9.0], [torch.nan], [torch.nan]]), torch.tensor([0.25]), 2).tolist()
    [0.25]
    """
    return counted_excess(counted(evidence), usual, known)


def counted_excess(counts: Tensor, usual: Tensor, known: int) -> Tensor:
    """The same by what is `counted` of all nodes, less what chance puts into the share of fewer nodes than `known`."""
    share, nodes = RARE * (1 - RARE), counts[1].clamp(min=1)
    chance = 2 * ((share / nodes).sqrt() - math.sqrt(share / max(known, 1))).clamp(min=0)
    return (_rare_shares(counts) - usual - chance).clamp(min=0)


def counted(evidence: Tensor) -> Tensor:
    """How many nodes are rare by each evidence, and of how many it says anything: [2, parts] of E [nodes, parts]."""
    return torch.stack([(evidence > -math.log(RARE)).sum(dim=0), (~evidence.isnan()).sum(dim=0)]).double()


def _rare_shares(counts: Tensor) -> Tensor:
    return counts[0] / counts[1].clamp(min=1)


class Weights(NamedTuple):
    """What a graph as a whole says: how much each evidence counts in it, where its odd nodes stand, how odd it is."""

    each: Tensor
    """Of own evidence and the surroundings', [parts]."""
    regions: Tensor
    """t, 0 to 1."""
    unlike: Tensor
    """a: how far all nodes are unlike their neighbours."""
    unknown: Tensor
    """b: how far all nodes are unknown."""
    scattered: Tensor
    """x."""

    @classmethod
    def of(cls, q: Tensor, unlike: int, unknown: int, scatters: Tensor, far: Tensor) -> Weights:
        """By the q of each evidence, of which so many are of the first and of the second kind, then surroundings.

        `scatters` is a mask of those that tell of scattered nodes, `far` the share of nodes that are not heard, beyond
        the usual one.
        """
        own = unlike + unknown
        first, second, around = q[:unlike], q[unlike:own], q[own:]
        scattered = torch.maximum(_largest(q[scatters]), far.to(q))
        unexplained = _largest(second) - EXPLAINED * scattered
        together = (FLOOR + unexplained.clamp(min=0)).square()
        t = together / (together + (FLOOR + scattered).square())
        u = _relative(torch.cat([first, (second - scattered).clamp(min=0)]))
        u, v = u * (own / u.square().sum()).sqrt(), _relative(around)
        own_weights = (1 - t) * u + t * torch.cat([torch.zeros_like(first), _relative(second)])
        odd = torch.sigmoid((_largest(first) - UNLIKE[0]) / UNLIKE[1])
        strange = torch.sigmoid((unexplained - UNKNOWN[0]) / UNKNOWN[1])
        w = surroundings_weight(t, torch.maximum(odd, strange))
        return cls(torch.cat([own_weights, w * v]), t, odd, strange, scattered)

    @property
    def openness(self) -> Tensor:
        """o, 0 to 1."""
        return torch.maximum(self.unlike, self.unknown)


def surroundings_weight(regions: Tensor, openness: Tensor) -> Tensor:
    """w = ¼ + 1¾ · the larger of t and o."""
    return LEAST + (MOST - LEAST) * torch.maximum(regions, openness)


def none_left(weights: Weights, values: Spread, known: Tensor) -> Tensor:
    """g: how far a graph has no usual node left, 0 to 1, by own evidence of its nodes and of those `known`."""
    usual = values.below(float(known.median())) if len(values) else 0.0
    few = torch.sigmoid(known.new_tensor((USUAL[0] - usual) / USUAL[1]))
    return torch.maximum(weights.unlike, weights.unknown * few)


def added(weights: Weights, left: Tensor, values: Spread, known: Tensor) -> Tensor:
    """δ: by how much trouble in a graph has raised its usual nodes' z', `values` of all nodes beside those `known`."""
    if not len(values):
        return known.new_zeros(())
    share = 0.5 - 0.25 * float(weights.regions)
    return (1 - left) * max(0.0, values.quantile(share) - spread_of(known).quantile(share))


def explaining(weights: Weights, left: Tensor) -> Tensor:
    """k: how far odd in-neighbours may be the reason why nodes are odd."""
    return (1 - left) * (1 - weights.regions) * weights.scattered / (FLOOR + weights.scattered)


def oddness(values: Tensor, known: Tensor, shift: Tensor) -> Tensor:
    """e: how far nodes' z' lies beyond δ and nine in ten of those `known`."""
    return (values - shift - spread_of(known).quantile(1 - RARE)).clamp(min=0)


def explained(own: Tensor, around: Tensor) -> Tensor:
    """¾ A² / (A² + e²) of a node's e and its in-neighbours' mean, A: the share of evidence that these may explain.

    >>> explained(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 2.0])).tolist()
    [0.0, 0.375, 0.6000...]
    """
    largest = torch.maximum(own, around)  # by which neither square leaves the range of numbers
    mine, theirs = (torch.where(largest > 0, each / largest, 0.0).square() for each in (own, around))
    return torch.where(theirs > 0, MOST_EXPLAINED * theirs / (mine + theirs), 0.0)


def _largest(excesses: Tensor) -> Tensor:
    return excesses.amax() if len(excesses) else excesses.sum()


def _relative(excesses: Tensor) -> Tensor:
    return (FLOOR + excesses) / (FLOOR + excesses.amax()) if len(excesses) else excesses
