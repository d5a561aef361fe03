"""What the server counts, for Prometheus."""

from collections.abc import Callable

from relpos_tf.utils import extras

with extras.imports("serve", "relpos-serve"):
    import prometheus_client

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
_LINES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters in a registry of their own, and those of the process."""

    def __init__(self):
        self._registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self._registry)
        kinds = prometheus_client
        self._requests = self._make(
            kinds.Counter,
            "requests",
            "Requests to translate, by the status of the answer; 499: the "
            "client hung up.",
            "status",
        )
        self._seconds = self._make(
            kinds.Histogram,
            "request_seconds",
            "Seconds from a request's arrival to its translations.",
            "model",
            buckets=_SECONDS,
        )
        self._lines = self._make(
            kinds.Counter, "lines", "Lines that were translated.", "model"
        )
        self._batch_lines = self._make(
            kinds.Histogram,
            "batch_lines",
            "Lines of a batch.",
            "model",
            buckets=_LINES,
        )
        self._batch_seconds = self._make(
            kinds.Histogram,
            "batch_seconds",
            "Seconds that a batch took to translate.",
            "model",
            buckets=_SECONDS,
        )
        self._queue = self._make(
            kinds.Gauge, "queue_lines", "Lines that wait.", "model"
        )

    def _make(self, kind, name, text, label, **kwargs):
        return kind(
            f"relpos_{name}", text, [label], registry=self._registry, **kwargs
        )

    def watch_queue(self, model: str, waiting: Callable[[], int]) -> None:
        """Shows what `waiting` returns as the lines that wait for a model."""
        self._queue.labels(model).set_function(waiting)

    def count_request(self, status: int) -> None:
        """Counts an answer by its status code."""
        self._requests.labels(str(status)).inc()

    def count_translation(self, model: str, lines: int, seconds: float) -> None:
        """Counts a request that was translated."""
        self._seconds.labels(model).observe(seconds)
        self._lines.labels(model).inc(lines)

    def count_batch(self, model: str, lines: int, seconds: float) -> None:
        """Counts a batch."""
        self._batch_lines.labels(model).observe(lines)
        self._batch_seconds.labels(model).observe(seconds)

    def text(self) -> bytes:
        """Returns everything in Prometheus' format."""
        return prometheus_client.generate_latest(self._registry)
