"""What the server counts, for Prometheus."""

from typing import Any

import prometheus_client

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
_LINES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of a server and of its process.

    Attributes:
        requests: Counter by status.
        request_seconds: Histogram by model, as the others are.
        lines: Counter.
        batch_lines: Histogram.
        batch_seconds: Histogram.
        queue_lines: Gauge.
    """

    def __init__(self):
        self._registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self._registry)
        own: Any = {"namespace": "relpos", "registry": self._registry}
        self.requests = prometheus_client.Counter(
            "requests",
            "Requests to translate, by status; 499: the client hung up.",
            ["status"],
            **own,
        )
        own["labelnames"] = ["model"]
        histogram = prometheus_client.Histogram
        self.request_seconds = histogram(
            "request_seconds",
            "Seconds from a request's arrival to its translations.",
            **own,
        )
        self.lines = prometheus_client.Counter(
            "lines", "Translated lines.", **own
        )
        self.batch_lines = histogram(
            "batch_lines", "Lines of a batch.", buckets=_LINES, **own
        )
        self.batch_seconds = histogram(
            "batch_seconds", "Seconds of a batch.", **own
        )
        self.queue_lines = prometheus_client.Gauge(
            "queue_lines", "Waiting lines.", **own
        )

    def text(self) -> bytes:
        """Returns everything in Prometheus' format."""
        return prometheus_client.generate_latest(self._registry)
