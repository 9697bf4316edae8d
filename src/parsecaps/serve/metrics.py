"""What the server counts, for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class ServeMetrics:
    """The counters of one server, in a registry of their own; no label has anything that a client can make up."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "parsecaps_requests", "Requests.", ("route", "method", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "parsecaps_request_seconds", "Time to the answer.", ("route",), buckets=_SECONDS, registry=self.registry
        )
        self._problems = Counter("parsecaps_problems", "Requests that were refused.", ("code",), registry=self.registry)
        self._images = Counter("parsecaps_images", "Images of requests.", ("result",), registry=self.registry)
        self._batch = Histogram("parsecaps_batch_images", "Images in a batch.", buckets=_IMAGES, registry=self.registry)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a number that is looked up whenever somebody asks."""
        Gauge(f"parsecaps_{name}", text, registry=self.registry).set_function(value)

    def count_request(self, route: str, method: str, status: int, seconds: float, problem: str | None) -> None:
        """Count a request that is answered."""
        self._requests.labels(route, method if method in _METHODS else "other", str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        if problem:
            self._problems.labels(problem).inc()

    def count_images(self, answered: int, refused: int) -> None:
        """Count images that have an answer, and files that have an error."""
        self._images.labels("answered").inc(answered)
        self._images.labels("refused").inc(refused)

    def count_batch(self, size: int) -> None:
        """Count a batch."""
        self._batch.observe(size)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)
