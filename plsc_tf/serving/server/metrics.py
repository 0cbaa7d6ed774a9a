"""The server's metrics for Prometheus."""

import functools

import prometheus_client as prometheus

_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counters of one server, in a registry of their own.

    Attributes:
        waiting, connections, version, gallery: gauges.
    """

    content_type = prometheus.CONTENT_TYPE_LATEST

    def __init__(self):
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)
        counter = functools.partial(prometheus.Counter, registry=registry)
        gauge = functools.partial(prometheus.Gauge, registry=registry)
        histogram = functools.partial(prometheus.Histogram, registry=registry)
        self._requests = counter(
            "plsc_tf_requests",
            "Requests answered, by interface and status.",
            ("interface", "status"),
        )
        self._seconds = histogram(
            "plsc_tf_request_seconds",
            "Seconds from a request's head to its answer.",
            ("interface",),
            buckets=_SECONDS,
        )
        self._images = counter("plsc_tf_images", "Images computed.")
        self._batches = histogram(
            "plsc_tf_batch_images",
            "Images in a batch, without filling.",
            buckets=tuple(1 << power for power in range(11)),
        )
        self._loads = counter(
            "plsc_tf_model_loads",
            "Versions loaded, by result: ok or failed.",
            ("result",),
        )
        self.waiting = gauge("plsc_tf_waiting_images", "Images that wait.")
        self.connections = gauge("plsc_tf_connections", "Open HTTP connections.")
        self.version = gauge("plsc_tf_model_version", "Newest version that is served.")
        self.gallery = gauge("plsc_tf_gallery_faces", "Faces in the gallery.")

    def request(self, interface: str, status: int | str, seconds: float) -> None:
        """Counts an answer."""
        self._requests.labels(interface, str(status)).inc()
        self._seconds.labels(interface).observe(seconds)

    def batch(self, count: int) -> None:
        """Counts a batch of `count` images."""
        self._images.inc(count)
        self._batches.observe(count)

    def load(self, succeeded: bool) -> None:
        """Counts an attempt to load a version."""
        self._loads.labels("ok" if succeeded else "failed").inc()

    def text(self) -> bytes:
        """Returns all metrics in Prometheus's text format."""
        return prometheus.generate_latest(self._registry)
