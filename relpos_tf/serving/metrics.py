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
        counter = prometheus_client.Counter
        histogram = prometheus_client.Histogram
        self.requests = self._make(
            counter,
            "requests",
            "Requests to translate, by status; 499: the client hung up.",
            label="status",
        )
        self.request_seconds = self._make(
            histogram,
            "request_seconds",
            "Seconds from a request's arrival to its translations.",
        )
        self.lines = self._make(counter, "lines", "Translated lines.")
        self.batch_lines = self._make(
            histogram, "batch_lines", "Lines of a batch.", buckets=_LINES
        )
        self.batch_seconds = self._make(
            histogram, "batch_seconds", "Seconds of a batch."
        )
        self.queue_lines = self._make(
            prometheus_client.Gauge, "queue_lines", "Waiting lines."
        )

    def _make(self, kind, name, text, label="model", **kwargs) -> Any:
        return kind(
            f"relpos_{name}", text, [label], registry=self._registry, **kwargs
        )

    def text(self) -> bytes:
        """Returns everything in Prometheus' format."""
        return prometheus_client.generate_latest(self._registry)
