"""What the server tells Prometheus."""

import prometheus_client as prometheus

_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counters of one server, in a registry of their own."""

    content_type = prometheus.CONTENT_TYPE_LATEST

    def __init__(self):
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)
        self._requests = prometheus.Counter(
            "plsc_tf_requests",
            "Requests answered, by interface and status.",
            ("interface", "status"),
            registry=registry,
        )
        self._seconds = prometheus.Histogram(
            "plsc_tf_request_seconds",
            "Seconds from a request's head to its answer.",
            ("interface",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._images = prometheus.Counter(
            "plsc_tf_images", "Pictures computed.", registry=registry
        )
        self._batches = prometheus.Histogram(
            "plsc_tf_batch_images",
            "Pictures in a batch, without filling.",
            buckets=tuple(1 << power for power in range(11)),
            registry=registry,
        )
        self.waiting = prometheus.Gauge(
            "plsc_tf_waiting_images", "Pictures that wait.", registry=registry
        )
        self.connections = prometheus.Gauge(
            "plsc_tf_connections", "Open HTTP connections.", registry=registry
        )
        self.version = prometheus.Gauge(
            "plsc_tf_model_version", "Newest version that is served.", registry=registry
        )
        self._loads = prometheus.Counter(
            "plsc_tf_model_loads",
            "Versions loaded, by result: ok or failed.",
            ("result",),
            registry=registry,
        )
        self.gallery = prometheus.Gauge(
            "plsc_tf_gallery_faces", "Faces in the gallery.", registry=registry
        )

    def request(self, interface, status, seconds):
        """Counts an answer."""
        self._requests.labels(interface, str(status)).inc()
        self._seconds.labels(interface).observe(seconds)

    def batch(self, count):
        """Counts a batch of `count` pictures."""
        self._images.inc(count)
        self._batches.observe(count)

    def load(self, succeeded):
        """Counts an attempt to load a version."""
        self._loads.labels("ok" if succeeded else "failed").inc()

    def text(self):
        """Returns all of it in Prometheus's text format, as bytes."""
        return prometheus.generate_latest(self._registry)
