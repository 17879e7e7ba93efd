"""For users: scores, decisions with a stated error rate, reasons, advice, and files."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gnnsafe.detector.deciding import Deciding
from gnnsafe.detector.saving import save
from gnnsafe.diagnosis import CANDIDATES, Diagnosis, diagnose
from gnnsafe.errors import require
from gnnsafe.explanation import Explanation, explain
from gnnsafe.files import given_path
from gnnsafe.graph import Graph, node_number
from gnnsafe.methods import Method

__all__ = ["Detector"]


class Detector(Deciding):
    """Score the nodes of graphs by `method` on the outputs of `model`; decide with a stated error rate; say why.

    The model's training mode and gradients are left as they were found.

        detector = gnnsafe.Detector(model).fit(data)            # data.y, data.train_mask, data.val_mask
        scores = detector.score(new_data)                       # float32, one per node, higher = more OOD
        detector.calibrate(data)                                # data.val_mask
        flags = detector.predict(new_data, false_alarm=0.05)    # at most 5 % of ID nodes flagged

    Args:
        model: Any module called `(x, edge_index)` that returns logits; None for a trivial method, which needs none.
        method: A method or its name. By default it is `TwoScale`, without what cannot be fitted on the training
            graph: a `MethodWarning` says what is missing, such as a `val_mask` with 20 nodes.
        embedding: The name of the submodule that gives the penultimate embedding, for methods that read it. Models of
            `gnnsafe.models` say it by themselves.
        forward: How to call the model, `forward(model, data)`, where that is not `model(x, edge_index)`.
        task: "multiclass", or "multilabel" where logits are those of sigmoids, one per label (a binary head has one).
        node_type: The nodes of a `HeteroData` whose logits `forward` returns.
        edge_types: The edges of a `HeteroData` over which scores are propagated; by default all that join such nodes in
            the graph that is fitted.
        scaling: Applied to the features of every graph before model and method read them: the one that the model's
            training features were scaled by (`FeatureScaling.fit`).
        undirected: Whether each edge of every graph is read in both directions, repeated ones once.

    Raises:
        InputError: An argument breaks a rule, such as a `node_type` without a `forward`.
        UnknownNameError: There is no method of that name.

    >>> import gnnsafe
    >>> graphs = gnnsafe.load_benchmark("synthetic", shift="feature", nodes=300, edges=1500, features=16, classes=3)
    >>> model = gnnsafe.models.GCN(16, 16, 3)
    >>> history = gnnsafe.train(model, graphs.id, objective=gnnsafe.CrossEntropy(), epochs=10)
    >>> detector = gnnsafe.Detector(model).fit(graphs.id).calibrate(graphs.id)
    >>> detector
    Detector(GCN, TwoScale())
    >>> detector.score(graphs.ood["feature"]).shape
    torch.Size([300])
    >>> flags = detector.predict(graphs.id, false_alarm=0.1)
    >>> decided = detector.decide(graphs.id, false_alarm=0.1)
    >>> list(decided.columns())
    ['id', 'predicted', 'probability', 'score', 'p_value', 'flag']
    """

    def explain(self, data: Graph, *, node: int | str) -> Explanation:
        """Why a node has its score: each node's exact share in it, logits, where it stands, and the nearest classes.

        Where the method weighs evidence (`TwoScale`, `Consensus`), also what each piece adds, which nodes counted
        in those that are propagated, and what the graph as a whole did. The graph is read for this alone: `score_new`
        goes on with the one that was scored last.

        Args:
            data: The graph.
            node: Its number or, as text, its id in `data.node_id`.

        Returns:
            The reasons: print it, `.draw("why.svg")` it, or take `.to_dict()`.

        Raises:
            NotFittedError: The detector is not fitted.
            InputError: There is no such node, or the graph is unlike the training graph.
        """
        outputs = self.outputs(data)
        node = node_number(outputs.graph, node)
        calibration = None if self.calibration_ is None else self.calibrated()
        classes, names = self.classes_, self.class_names_
        return explain(self.method, outputs, node, calibration=calibration, classes=classes, class_names=names)

    def diagnose(
        self, data: Graph, *, candidates: Sequence[Method | str] = CANDIDATES, draws: int = 3, seed: int = 0
    ) -> Diagnosis:
        """Which detector suits which trouble on the ID graph `data`: the method as it is, or one of the `candidates`.

        No OOD data is needed. Trouble is planted among held-out nodes, those of `data.test_mask` or all, but for
        training and validation nodes: classes taken out of what detectors see (their labels must be known), nodes,
        regions and a whole graph with other features or edges. Candidates are the method's own score, with other steps
        and alpha too unless it is TwoScale's, and other methods. Heterophilic graphs get a warning.

        Args:
            data: The graph that the detector was fitted on, with `y` and `train_mask`.
            candidates: Other methods or their names.
            draws: How often each shift is planted.
            seed: Of the shifts and of the classes drawn where there are more than ten.

        Returns:
            A table and a verdict for each kind of trouble, with how sure it is: print it. The detector as it is stays
            recommended unless another candidate is clearly better.

        Raises:
            InputError: Where an argument is of the wrong kind, or too few nodes are held out to plant any.
        """
        require(self.node_type is None, "data", "be one graph with one type of nodes", "a heterogeneous graph")
        return diagnose(
            self.method, self.outputs, self.prepared(data).data, candidates=candidates, draws=draws, seed=seed
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """All that was fitted and calibrated, as safetensors and JSON in a folder; see `gnnsafe.load`.

        A model of gnnsafe.models is saved with it. Another is not: the detector knows it again by its weights.

        Args:
            folder: Where to; it is made where it does not exist, and what another detector has left there is replaced.

        Raises:
            NotFittedError: The detector is not fitted.
            InputError: The model has other weights than it was fitted with, or a method is of no registered name.
        """
        save(self, given_path("folder", folder))
