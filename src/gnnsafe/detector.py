"""A method bound to somebody's model: what practitioners touch."""

from __future__ import annotations

from torch import Tensor, nn

from gnnsafe.errors import NotFittedError, require, require_known
from gnnsafe.graph import Graph, node_labels, node_mask
from gnnsafe.methods import METHODS, GNNSafe, Method
from gnnsafe.outputs import Outputs

__all__ = ["Detector"]


class Detector:
    """Score the nodes of graphs by `method` (GNNSafe unless told; a method or its name) on the outputs of `model`.

    The model is any module called `(x, edge_index)` that returns logits. It is run once per graph, in evaluation
    mode and without gradients, and left as it was found.

        detector = gnnsafe.Detector(model).fit(data)   # data.y, data.train_mask
        scores = detector.score(new_data)              # float32, one per node, higher = more OOD
    """

    def __init__(self, model: nn.Module, method: Method | str | None = None) -> None:
        if isinstance(method, str):
            require_known("method", method, METHODS)
            method = METHODS[method]()
        self.model = model
        self.method = GNNSafe() if method is None else method
        require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model).__name__)
        require(
            isinstance(self.method, Method), "method", "be a method such as gnnsafe.methods.GNNSafe()", repr(method)
        )
        self.num_features_: int | None = None

    def __repr__(self) -> str:
        return f"Detector({type(self.model).__name__}, {self.method!r})"

    def fit(self, data: Graph) -> Detector:
        """Show the method the graph that the model was trained on, with `y` and `train_mask`."""
        outputs = Outputs.of(self.model, data)
        self.method = self.method.fit(outputs, node_labels(data), node_mask(data, "train_mask"))
        self.num_features_ = int(data.x.shape[1])
        return self

    def score(self, data: Graph) -> Tensor:
        """Float32, one per node, higher = more out-of-distribution."""
        if self.num_features_ is None:
            raise NotFittedError(f"{self!r} is not fitted; call fit(data) on the training graph first")
        return self.method.score(Outputs.of(self.model, data, num_features=self.num_features_))
