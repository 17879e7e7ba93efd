"""A method bound to somebody's model: what practitioners touch."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from gnnsafe.checks import Task
from gnnsafe.errors import NotFittedError, require, require_known
from gnnsafe.graph import Graph, check_graph, node_labels, node_mask
from gnnsafe.methods import METHODS, GNNSafe, Method
from gnnsafe.outputs import Classifier, Forward, Outputs

__all__ = ["Detector"]


class Detector:
    """Score the nodes of graphs by `method` (GNNSafe unless told; a method or its name) on the outputs of `model`.

    The model is any module called `(x, edge_index)` that returns logits, or called by `forward(model, data)`. Its
    training mode and gradients are left as they were found. Methods that read the penultimate embedding find it in
    our models by themselves; for another, `embedding` names the submodule that gives it. With `task="multilabel"` the
    logits are those of sigmoids, one per label (a binary head has one). A trivial method needs no model: None.

        detector = gnnsafe.Detector(model).fit(data)   # data.y, data.train_mask
        scores = detector.score(new_data)              # float32, one per node, higher = more OOD
        gnnsafe.Detector(model, "knn", embedding="convs.0", forward=lambda model, data: model(data.x, data.edge_index))
    """

    def __init__(
        self,
        model: nn.Module | None,
        method: Method | str | None = None,
        *,
        embedding: str | None = None,
        forward: Forward | None = None,
        task: Task = "multiclass",
    ) -> None:
        if isinstance(method, str):
            require_known("method", method, METHODS)
            method = METHODS[method]()
        self.method = GNNSafe() if method is None else copy.deepcopy(method)  # fitted here, nowhere else
        require(
            isinstance(self.method, Method), "method", "be a method such as gnnsafe.methods.GNNSafe()", repr(method)
        )
        modelless = model is None and not self.method.needs_model()
        self.classifier = None if modelless else Classifier(model, forward, embedding, task)  # type: ignore[arg-type]
        self.task = task
        self.num_features_: int | None = None

    def __repr__(self) -> str:
        return f"Detector({type(self.classifier.model).__name__ if self.classifier else None}, {self.method!r})"

    def fit(self, data: Graph) -> Detector:
        """Show the method the graph that the model was trained on, with `y` and `train_mask`."""
        check_graph(data)
        outputs = self._outputs(data)
        self.method.fit(outputs, node_labels(data, outputs.task), node_mask(data, "train_mask"))
        self.num_features_ = int(data.x.shape[1])
        return self

    def score(self, data: Graph) -> Tensor:
        """Float32, one per node, higher = more out-of-distribution."""
        if self.num_features_ is None:
            raise NotFittedError(f"{self!r} is not fitted; call fit(data) on the training graph first")
        check_graph(data, num_features=self.num_features_)
        return self.method.score(self._outputs(data))

    def _outputs(self, data: Graph) -> Outputs:
        if self.classifier is None:
            return Outputs(torch.empty(data.x.shape[0], 0), data, self.task)
        return self.classifier(data)
