"""What Prometheus is told: requests, latency, nodes, flags, p-values and the alarm; never a node's id."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from gnnsafe.detector import Decisions

if TYPE_CHECKING:
    from gnnsafe.service.state import Service

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
P_VALUES = tuple(round(0.05 * k, 2) for k in range(1, 21))


class Metrics:
    """Counters of one service; each service has its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made = self.registry
        labels = ["method", "path", "status"]
        self._requests = Counter("gnnsafe_requests", "Requests by route and status", labels, registry=made)
        self._seconds = Histogram(
            "gnnsafe_request_seconds",
            "Time to the end of the answer",
            ["method", "path"],
            buckets=LATENCY,
            registry=made,
        )
        self._scored = Counter("gnnsafe_nodes_scored", "Nodes scored on request", ["model"], registry=made)
        self._flagged = Counter("gnnsafe_nodes_flagged", "Nodes flagged on request", ["model"], registry=made)
        self._p_values = Histogram(
            "gnnsafe_p_value", "p-values of nodes scored on request; of ID nodes uniform", ["model"], buckets=P_VALUES,
            registry=made,
        )  # fmt: skip

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """One request, by its route: a path may hold a node's id, a route does not."""
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(method, path).observe(seconds)

    def decided(self, model: str, decisions: Decisions) -> None:
        """What was decided about some nodes."""
        self._scored.labels(model).inc(len(decisions))
        self._flagged.labels(model).inc(int(decisions.flags.sum()))
        histogram = self._p_values.labels(model)
        p = decisions.p_values.cpu().numpy()
        places = np.searchsorted(P_VALUES, p)  # the first bound that is no smaller
        for bucket, count in zip(histogram._buckets, np.bincount(places, minlength=len(P_VALUES) + 1), strict=True):
            bucket.inc(int(count))
        histogram._sum.inc(float(p.sum()))

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self.registry)


class State:
    """What is true of the service when it is asked: the kept graph, the queue, the alarm."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """The gauges."""
        service = self._service
        yield _gauge("gnnsafe_ready", "1 where /readyz says yes", float(not service.problems()))
        yield _gauge("gnnsafe_pending_requests", "Requests at work or waiting", service.pool.pending)
        models = GaugeMetricFamily("gnnsafe_model_loaded_seconds", "When it was loaded", labels=["model", "version"])
        for model in service.models:
            models.add_metric([model.name, model.version], model.loaded_at)
        yield models
        if service.kept is not None:
            yield from self._kept(service.kept)
        if judged := service.judged:
            alarm = judged[-1]
            yield _gauge("gnnsafe_martingale_log10", "log10 of the alarm's martingale", alarm.log_value / math.log(10))
            yield _gauge("gnnsafe_martingale_peak_log10", "Its highest value so far", alarm.log_peak / math.log(10))

    def _kept(self, kept: Any) -> Iterator[Metric]:
        summary = kept.columns.summary()
        yield _gauge("gnnsafe_graph_nodes", "Nodes of the kept graph", summary.nodes)
        yield _gauge("gnnsafe_graph_edges", "Edges of the kept graph", kept.graph.num_edges)
        yield _gauge("gnnsafe_graph_flagged", "Flagged nodes of the kept graph", summary.flagged)
        yield _gauge("gnnsafe_graph_version", "Sets of changes made to the kept graph", kept.version)
        counts = np.cumsum(summary.p_values).tolist()
        buckets = [*((str(bound), count) for bound, count in zip(P_VALUES, counts, strict=True)), ("+Inf", counts[-1])]
        yield HistogramMetricFamily(
            "gnnsafe_graph_p_value", "p-values of the kept graph's nodes", buckets=buckets, sum_value=None
        )


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)
