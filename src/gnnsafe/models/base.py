"""What all models share: a chain of layers with the block between two of them, drawn, checked and run in stages."""

from __future__ import annotations

from abc import abstractmethod
from inspect import Parameter, signature
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own idiom

from gnnsafe.arguments import PlainNumbers, declared_types
from gnnsafe.errors import InputError, is_number, require, require_flag, require_whole
from gnnsafe.models.inputs import check_fits
from gnnsafe.models.known import known_graph
from gnnsafe.outputs import Penultimate
from gnnsafe.prepared import PreparedGraph
from gnnsafe.randomness import DRAWING

__all__ = ["Backbone", "Model", "check_constructor", "glorot"]

VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def glorot(rows: int, columns: int) -> nn.Parameter:
    """A matrix drawn uniformly from ±√(6 / (rows + columns))  (Glorot & Bengio, 2010)."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))


class _Drawn(PlainNumbers):
    """The type of classes whose constructor draws weights: not while a training in another thread draws its numbers."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - a metaclass
        """Construct it in turn."""
        with DRAWING:
            return super().__call__(*args, **kwargs)


class Model(nn.Module, metaclass=_Drawn):
    """A module called `(x, edge_index)` that knows what it was constructed with, so that a file can say how to make it.

    A model of your own derives from it to be registered (`MODELS.register`). Its constructor takes `in_channels`,
    `hidden_channels`, `out_channels` and whatever else has a default, each declared with its type.
    """

    arguments: dict[str, Any]

    @property
    def reach(self) -> int | None:
        """The receptive field in hops: from how many edges away other nodes count in a node's logits; None: unknown."""
        return None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """The arguments by their names; a copy is made without any, and gets those of its original."""
        module = super().__new__(cls)
        if args or kwargs:
            try:
                bound = signature(cls).bind(*args, **kwargs)
            except TypeError:
                return module  # the constructor says what is wrong with them
            bound.apply_defaults()
            object.__setattr__(module, "arguments", dict(bound.arguments))  # torch's own wants __init__ first
        return module


def check_constructor(model: type[Model]) -> None:
    """Raise an `InputError` unless a registered model is constructed as ours are, with arguments of declared types."""
    rule = "have a constructor (in_channels: int, hidden_channels: int, out_channels: int, …) and defaults for all else"
    try:
        signature(model).bind(**dict.fromkeys(("in_channels", "hidden_channels", "out_channels")))
    except TypeError as error:
        raise InputError(f"'model' must {rule} (got {model.__name__}: {error})") from None
    kinds, parameters = declared_types(model.__init__, model.__name__), signature(model).parameters
    lacking = next((str(one) for one in parameters.values() if one.kind in VARIABLE or one.name not in kinds), None)
    require(lacking is None, "model", "declare each argument and its type", f"'{lacking}' of {model.__name__}")


class Backbone(Model):
    """H ← Dropout(ReLU(BatchNorm(layer(H)))) from layer to layer, logits layer(H) + b.

    A model says what it reads of a graph (`read`), its first layer (`stem`) and each other one (`layer`). A bias before
    BatchNorm has no gradient, so there is none. Features may be dense or sparse CSR. The penultimate embedding is what
    the last layer reads, before dropout.
    """

    matrices: ClassVar[int] = 1
    """How many matrices a layer has; its weight is all of them, one above the other."""

    bare: ClassVar[int] = 1
    """How many layers at the end have no BatchNorm after them, hence a bias."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        *,
        dropout: float = 0.0,
        batch_norm: bool = True,
    ) -> None:
        """Draw the weights.

        Args:
            in_channels: How many features a node has.
            hidden_channels: The width of hidden layers.
            out_channels: How many classes (or labels) there are.
            num_layers: How many layers: of message passing, or linear ones where there is none.
            dropout: The share of hidden units dropped in training, below 1.
            batch_norm: Whether BatchNorm comes after hidden layers.

        Raises:
            InputError: An argument breaks its rule.
        """
        super().__init__()
        sizes = {"in_channels": in_channels, "hidden_channels": hidden_channels, "out_channels": out_channels}
        for name, size in {**sizes, "num_layers": num_layers}.items():
            require_whole(name, size, 1)
        require(is_number(dropout) and 0 <= dropout < 1, "dropout", "lie in [0, 1)", dropout)
        require_flag("batch_norm", batch_norm)
        widths = self.widths(in_channels, hidden_channels, out_channels, num_layers)
        self.weights = nn.ParameterList(glorot(self.matrices * m, n) for m, n in pairwise(widths))
        normed = len(widths) - 1 - self.bare if batch_norm else 0
        self.norms = nn.ModuleList(nn.BatchNorm1d(n) for n in widths[1:][:normed])
        self.biases = nn.ParameterList(torch.zeros(n) for n in widths[1:][normed:])
        self.penultimate = Penultimate()
        self.in_channels, self.num_layers, self.dropout = in_channels, num_layers, dropout

    @staticmethod
    def widths(in_channels: int, hidden_channels: int, out_channels: int, num_layers: int) -> list[int]:
        """Channels before, between and after the layers."""
        return [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]

    @property
    def reach(self) -> int:
        """The receptive field in hops: from how many edges away other nodes count in a node's logits."""
        return self.num_layers

    def reset_parameters(self) -> None:
        """Reset the weights, as PyG's `GCNConv` does: Glorot uniform, biases zero."""
        for parameter in self.parameters():
            (nn.init.xavier_uniform_ if parameter.dim() == 2 else nn.init.zeros_)(parameter)
        for norm in self.norms:
            assert isinstance(norm, nn.BatchNorm1d)
            norm.reset_parameters()

    def forward(self, x: Tensor | PreparedGraph, edge_index: Tensor | None = None) -> Tensor:
        """Logits, [nodes, classes], of features and edges or of a prepared graph."""
        inputs = self.prepare(known_graph(x, edge_index))
        return self.tail(self.stem(inputs), inputs)

    def prepare(self, graph: PreparedGraph) -> Any:
        """What depends on the graph alone, once the graph is known to fit the model."""
        check_fits(graph, self.in_channels, self.weights[0])
        return self.read(graph)

    @abstractmethod
    def read(self, graph: PreparedGraph) -> Any:
        """What the layers read of a graph."""

    @abstractmethod
    def stem(self, inputs: Any) -> Tensor:
        """The first layer, before anything that differs between training and evaluation."""

    @abstractmethod
    def layer(self, hidden: Tensor, index: int, inputs: Any) -> Tensor:
        """Layer `index` (the first, 0, is the stem) without its bias."""

    def tail(self, hidden: Tensor, inputs: Any) -> Tensor:
        """From the first layer to the logits."""
        for index in range(1, len(self.weights)):
            hidden = self.activated(hidden, index - 1)
            if index == len(self.weights) - 1:
                hidden = self.penultimate(hidden)
            hidden = self.layer(self.dropped(hidden), index, inputs)
        logits: Tensor = hidden + self.biases[-1]
        return logits

    @staticmethod
    def activation(hidden: Tensor) -> Tensor:
        """What makes layers more than one: ReLU, in place."""
        return F.relu(hidden, inplace=True)

    def activated(self, hidden: Tensor, index: int) -> Tensor:
        """activation(BatchNorm(H)) after layer `index`; in evaluation without gradients H itself becomes it.

        A new tensor of that size costs more than the arithmetic: its pages have to be fetched.
        """
        if not self.norms:
            return self.activation(hidden + self.biases[index])
        norm = self.norms[index]
        if norm.training or torch.is_grad_enabled() or norm._forward_hooks:
            return self.activation(norm(hidden))
        scale, shift = self.folded(index)
        return self.activation(torch.addcmul(shift, hidden, scale, out=hidden))

    def folded(self, index: int) -> tuple[Tensor, Tensor]:
        """BatchNorm after layer `index`, in evaluation, as a factor and an addend for each channel."""
        norm: Any = self.norms[index]
        scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
        return scale, norm.bias - norm.running_mean * scale

    def dropped(self, hidden: Tensor) -> Tensor:
        """Dropout(H)."""
        return F.dropout(hidden, self.dropout, self.training)
