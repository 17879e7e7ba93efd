"""A method bound to a model: fitted on one graph, it scores others, checked to be alike."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from gnnsafe.batches import InBatches
from gnnsafe.calibration import Calibration
from gnnsafe.checks import Task, check_binary, check_classes
from gnnsafe.detector.default import fit_default
from gnnsafe.errors import InputError, ModelWarning, NotFittedError, require, require_flag, require_whole
from gnnsafe.explanation import TrainingClasses
from gnnsafe.graph import Graph, check_feature_names, kept_names, node_labels, node_mask, stored
from gnnsafe.hashing import digest, weights_digest
from gnnsafe.held_out import KnownNodes, UsedNodes
from gnnsafe.hetero import EdgeType, node_type_graph
from gnnsafe.methods import Method, own_method
from gnnsafe.models import MODELS, Model
from gnnsafe.modes import without_modes
from gnnsafe.outputs import PLAIN_TYPES, Classifier, Forward, Outputs
from gnnsafe.prepared import PreparedGraph, admit
from gnnsafe.probing import probe
from gnnsafe.scaling import FeatureScaling

__all__ = ["Scorer"]

log = logging.getLogger(__name__)

REFIT = "fit and calibrate again"
NODE_TYPE_REMEDY = 'such as Detector(model, forward=…, node_type="paper")'


class Scorer:
    """What a `Detector` is before it decides: model, method, features' scaling, and what `fit` has learnt."""

    def __init__(
        self,
        model: nn.Module | None,
        method: Method | str | None = None,
        *,
        embedding: str | None = None,
        forward: Forward | None = None,
        task: Task = "multiclass",
        node_type: str | None = None,
        edge_types: Sequence[EdgeType] | None = None,
        scaling: FeatureScaling | None = None,
        undirected: bool = False,
    ) -> None:
        self.method = own_method(method)
        self._default = self.method if method is None else None  # to be replaced where it cannot be fitted
        known = scaling is None or isinstance(scaling, FeatureScaling)
        require(known, "scaling", "be a FeatureScaling", repr(scaling), "such as FeatureScaling.fit(x, train_mask)")
        require(edge_types is None or node_type is not None, "edge_types", "be given with node_type", edge_types)
        require(node_type is None or forward is not None, "forward", "be given with node_type", "none")
        require_flag("undirected", undirected)
        whole = "add the reverse edges to the data instead"
        require(not undirected or node_type is None, "undirected", "be False with node_type", "True", whole)
        self.forward, self.node_type, self.edge_types, self.scaling = forward, node_type, edge_types, scaling
        self.every_edge_type = edge_types is None  # of the graph that is fitted: others were never seen
        self.undirected = undirected
        asked = forward if forward is None or node_type is None else partial(_of_the_whole, forward)
        modelless = model is None and not self.method.needs_model()
        self.classifier = None if modelless else Classifier(model, asked, embedding, task)  # type: ignore[arg-type]
        self.task = task
        self.notes: dict[str, Any] = {}  # of the maker, as JSON: saved with it
        self.num_features_: int | None = None
        self.feature_names_: tuple[Any, ...] | None = None
        self.class_names_: tuple[Any, ...] | None = None
        self.classes_: TrainingClasses | None = None
        self.weights_: str | None = None  # the model's, as a digest
        self.numbers_: dict[tuple[str, str], object] = {}  # its attributes, except for those that change at each call
        self.passed_: tuple[str, ...] | None = None  # what of the graph its forward takes besides x and edge_index
        self.used_: UsedNodes | None = None
        self.calibration_: Calibration | None = None
        self.calibrated_by_: str | None = None  # the method as it was then
        self._fitted: tuple[PreparedGraph, Outputs, Any, Any] | None = None  # for `calibrate`: mostly of the same graph

    def __repr__(self) -> str:
        model = type(self.classifier.model).__name__ if self.classifier else None
        return f"{type(self).__name__}({model}, {self.method!r})"

    def fit(self, data: Graph, *, batch_size: int | None = None, hops: int | None = None) -> Self:
        """Fit the method on the graph that the model was trained on, with `y` and `train_mask`.

        A model that is not one of gnnsafe.models is looked at once: one whose forward writes into the graph, or into
        logits that it gave before, is refused, and a `ModelWarning` says what else is odd, such as a forward that keeps
        part of a graph or gives random answers. Where no method was named and the default cannot be fitted, a
        `MethodWarning` says which one is in its place.

        Args:
            data: The training graph, with `x`, `edge_index`, `y` and `train_mask`, and a `val_mask` for methods that
                learn what is usual from held-out nodes.
            batch_size: On how many nodes at a time the model runs; None: on all. See `score`.
            hops: With a `batch_size`, the model's receptive field; see `score`.

        Returns:
            The detector itself, fitted.

        Raises:
            InputError: The graph breaks a rule, or the method cannot be fitted on it.
        """
        self.num_features_ = self.feature_names_ = self.calibration_ = self._fitted = None  # what fails is not fitted
        self.edge_types = None if self.every_edge_type else self.edge_types
        asked, given = self._asked(batch_size, hops), self._admitted(data)
        graph = self._both_ways(given)
        y, mask = node_labels(graph, self.task), node_mask(graph, "train_mask")
        before = self._numbers()
        outputs = self._outputs(graph, asked, first=True)
        self.numbers_ = {name: one for name, one in self._numbers().items() if before.get(name, outputs) == one}
        self.feature_names_ = kept_names(graph, "feature_names", graph.x.shape[1])
        with without_modes():
            self._learn(outputs, y, mask)
            if self.method == self._default:
                self.method = self._default = fit_default(outputs, y, mask)
            else:
                self.method.fit(outputs, y, mask)
        validation = node_mask(graph, "val_mask") if self.method.learns_from_validation() else None
        self.used_ = UsedNodes.of(graph, mask, validation)
        self.passed_ = self._passed(graph)
        self.edge_types = given.data.kinds if self.node_type is not None else None
        self.num_features_ = int(graph.x.shape[1])
        KnownNodes.of(given, mask)  # whose hashes stay with it: `calibrate` sees by them whether it was written to
        self._fitted = given, outputs, self._state(given), self._read_besides(given)
        log.info("%r fitted on %d training nodes", self.method, int(mask.sum()))
        return self

    def _learn(self, outputs: Outputs, y: Tensor, mask: Tensor) -> None:
        """What is known of the model and its classes."""
        if self.classifier is None:
            self.class_names_, self.classes_, self.weights_ = None, None, None
            return
        if self.task == "multiclass":
            check_classes("y", y[mask], outputs.logits.shape[1], "training nodes")
        else:
            check_binary("y", y[mask], outputs.logits.shape[1], "the training mask")
        self.class_names_ = kept_names(outputs.graph, "class_names", outputs.logits.shape[1])
        self.classes_ = TrainingClasses.of(outputs, y, mask)
        self.weights_ = weights_digest(self.classifier.model)

    def outputs(self, data: Graph, *, batch_size: int | None = None, hops: int | None = None) -> Outputs:
        """What the model says about a graph; `method.score` and `calibration_` read it, so that it runs once.

        Args:
            data: The graph.
            batch_size: On how many nodes at a time the model runs; None: on all. See `score`.
            hops: With a `batch_size`, the model's receptive field; see `score`.

        Returns:
            Logits, embeddings where they are known, and the graph.

        Raises:
            NotFittedError: The detector is not fitted.
            InputError: The graph is unlike the training graph; or, with a `batch_size`, the model's receptive field is
                not known or larger than is said.
        """
        asked = self._asked(batch_size, hops)
        return self._outputs(self.prepared(data), asked)

    def _asked(self, batch_size: int | None, hops: int | None) -> Classifier | None:
        """The model, to be run on all nodes of a graph or on so many at a time."""
        if batch_size is None:
            require(hops is None, "hops", "be left out where there is no batch_size", hops)
            return self.classifier
        require_whole("batch_size", batch_size, 1)
        self._one_graph()
        reach = self._hops(hops)
        return self.classifier and InBatches.of(self.classifier, batch_size, reach, trusted=self._trusted(hops))

    def _one_graph(self) -> None:
        require(self.node_type is None, "data", "be one graph with one type of nodes", "a heterogeneous graph")

    def _trusted(self, hops: int | None) -> bool:
        """Whether the receptive field of the model is known to be no larger."""
        return self.classifier is None or (self.classifier.as_made and hops is None)

    def _hops(self, hops: int | None) -> int:
        """The receptive field of the model."""
        model = None if self.classifier is None else self.classifier.model
        if hops is None and isinstance(model, Model) and self.forward is None and MODELS.name_of(type(model)):
            hops = model.reach
            unsaid = f"{type(model).__name__}, which says none: it reads the whole graph, or lacks a `reach`"
            remedy = "use score(data), or give hops, its number of message-passing layers"
            require(hops is not None, "model", "have a known receptive field", unsaid, remedy)
        if hops is None and model is not None:
            raise InputError(
                f"'hops' must be given for {type(model).__name__}, which is not one of gnnsafe.models (got none): its "
                "receptive field in hops, usually its number of message-passing layers"
            )
        hops = 0 if hops is None else hops
        require_whole("hops", hops, 0)
        return hops

    def _outputs_as_fitted(self, data: Graph, asked: Classifier | None) -> tuple[PreparedGraph, Outputs]:
        """The graph and its outputs: those of `fit` where nothing has changed since, which is then not read again."""
        known, self._fitted = self._fitted, None
        if known is not None and known[2] == self._state(known[0]) and self._same(known[0], data, known[3]):
            self.check_weights()
            held = admit(data).data if isinstance(data, PreparedGraph) else data
            return self._both_ways(known[0] if data is known[0] else known[0].labelled_as(held)), known[1]
        graph = self.prepared(data)
        return graph, self._outputs(graph, asked)

    def _state(self, graph: PreparedGraph) -> Any:
        """What outputs depend on besides weights and what the graph's tensors hold."""
        settings = None if self.classifier is None else self.classifier.settings()
        return graph.versions(), self.scaling, self.undirected, settings

    def _numbers(self) -> dict[tuple[str, str], object]:
        return {} if self.classifier is None else self.classifier.numbers()

    def _same(self, graph: PreparedGraph, data: Any, besides: Any) -> bool:
        if data is graph:
            return True
        shared = getattr(data, "x", None) is graph.x and getattr(data, "edge_index", None) is graph.edge_index
        return shared and KnownNodes.unchanged(graph) and besides is not None and besides == self._read_besides(data)

    def _read_besides(self, data: Any) -> dict[str, object] | None:
        """What else the model may read of a graph, tensors as digests; None where that cannot be compared."""
        held = {name: value for name, value in stored(data).items() if name not in ("x", "edge_index")}
        read = held if self.forward is not None else {name: held.get(name) for name in self.passed_ or ()}
        if not all(isinstance(value, (Tensor, *PLAIN_TYPES)) for value in read.values()):
            return None
        return {name: digest({name: value}) if isinstance(value, Tensor) else value for name, value in read.items()}

    def _admitted(self, data: Any) -> PreparedGraph:
        if self.node_type is not None:
            data = node_type_graph(data, self.node_type, self.edge_types)
        require(not hasattr(data, "node_types"), "node_type", "be given for a HeteroData", "none", NODE_TYPE_REMEDY)
        check_feature_names(data, self.feature_names_)
        return admit(data, num_features=self.num_features_)

    def _both_ways(self, graph: PreparedGraph) -> PreparedGraph:
        return graph.both_ways() if self.undirected else graph

    def prepared(self, data: Any) -> PreparedGraph:
        """The graph as the detector reads it: one node type, edges both ways where it is `undirected`; checked once.

        Args:
            data: The graph.

        Returns:
            A prepared graph, which may stand for the data in any other call.

        Raises:
            NotFittedError: The detector is not fitted.
            InputError: The model has other weights than it was fitted with, or the graph is unlike the training graph.
        """
        if self.num_features_ is None:
            raise NotFittedError(f"{self!r} is not fitted; call fit(data) on the training graph first")
        self._fitted = None
        self.check_weights()
        graph = self._both_ways(self._admitted(data))
        if self.passed_ is not None and (passed := self._passed(graph)) != self.passed_:
            held, now = (", ".join(names) or "none" for names in (self.passed_, passed))
            require(False, "data", f"hold of what the forward takes what the training graph held: {held}", now)
        return graph

    def _outputs(self, graph: PreparedGraph, asked: Classifier | None, *, first: bool = False) -> Outputs:
        graph = self._scaled(graph)
        if asked is None:
            return Outputs(torch.empty(graph.num_nodes, 0, device=graph.device), graph, self.task)
        if not first or asked.as_made:
            return asked(graph)
        if isinstance(asked, InBatches):  # it looks at nodes in another order, of which any batch would read far more
            assert self.classifier is not None
            probe(self.classifier, asked.first(graph))
            return asked(graph)
        return probe(asked, graph)

    def _scaled(self, graph: PreparedGraph) -> PreparedGraph:
        """The graph as the model reads it."""
        if (scaling := self.scaling) is None:
            return graph
        scaled = graph.cached(scaling, lambda: graph.with_features(scaling(graph.x)))
        return scaled.labelled_as(graph.data)  # it may be kept from one with other labels

    def _passed(self, graph: PreparedGraph) -> tuple[str, ...]:
        read = () if self.classifier is None else self.classifier.read(graph)
        return tuple(read or ())

    def check_weights(self) -> None:
        """The model has the weights that it had when it was fitted; else thresholds would be another model's.

        Of other attributes it is not known which matter: numbers and texts that changed are named.

        Raises:
            InputError: The model has other weights than it was fitted with.
        """
        known = self.classifier is None or weights_digest(self.classifier.model) == self.weights_
        rule = "have the weights that the detector was fitted with"
        require(known, "model", rule, "others", REFIT)
        changed = [] if self.classifier is None else self.classifier.changed_numbers(self.numbers_)
        for place in (f"{path}.{name}" for path, name in changed if not name.startswith("_")):
            text = f"{place} is another than when the detector was fitted; if the model's answers depend on it, {REFIT}"
            warnings.warn(text, ModelWarning, stacklevel=5)  # where a score is asked for

    def calibrated(self) -> Calibration:
        """What `calibrate` has learnt; an error before that, or where another method would be compared with it.

        Returns:
            The calibration scores, and what is decided by them.

        Raises:
            NotFittedError: The detector is not calibrated.
            InputError: The detector was calibrated with another method.
        """
        if self.calibration_ is None:
            raise NotFittedError(f"{self!r} is not calibrated; call calibrate(data) with held-out ID nodes first")
        rule = f"be the one that the detector was calibrated with, {self.calibrated_by_}"
        require(repr(self.method) == self.calibrated_by_, "method", rule, repr(self.method), "calibrate again")
        return self.calibration_


def _of_the_whole(forward: Forward, model: nn.Module, graph: Any) -> Tensor:
    return forward(model, graph.whole)
