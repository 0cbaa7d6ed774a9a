"""The server application: sockets, signals, startup, shutdown and metrics."""

import asyncio
import contextlib
import functools
import gc
import resource
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import prometheus_client as prometheus
from absl import logging
from aiohttp import web, web_protocol

from plsc_tf.requirements import require_package
from plsc_tf.serving.server import rest, tls
from plsc_tf.serving.server.access import Access
from plsc_tf.serving.server.bodies import Bodies
from plsc_tf.serving.server.face_route import FaceRoute
from plsc_tf.serving.server.guard import Protocol
from plsc_tf.serving.server.http_routes import GalleryRoutes, Routes
from plsc_tf.serving.server.models import Models

# Bucket bounds, in seconds, of the histogram of request times.
_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10)


class App:
    """A server that runs in the event loop in which `serve` is called.

    Args:
        options: the option group `server`.

    Raises:
        ValueError, OSError: the files of keys or TLS cannot be used.

    Attributes:
        options: the option group `server`.
        port, grpc_port: the ports it listens on; set when `serve` calls `ready`.
        draining: True while the server is shutting down.
        access, metrics, bodies, models: the objects that handlers share; `models` is
            None before `serve`.
    """

    def __init__(self, options):
        self.options = options
        self.port = self.grpc_port = self.models = None
        self.draining = False
        self.access, self._tls = Access(options), tls.make_context(options)
        self.metrics, self.bodies = Metrics(), Bodies(options)
        self._connections = {}
        self.metrics.connections.set_function(self._connections.__len__)

    def stop(self) -> None:
        """Ends the server after the requests in progress; thread-safe, once ready."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def read_images(self, request: web.Request, *keys: str) -> dict:
        """Reads a request of PLSC's formats; see `rest.read_images`."""
        most = self.options.max_request_images
        return await self.bodies.read(request, rest.read_images, most, keys)

    async def serve(self, ready: Callable, handle_signals: bool = False) -> None:
        """Serves until `stop`, SIGTERM or SIGINT.

        Args:
            ready: called without arguments once the server answers requests.
            handle_signals: whether SIGTERM and SIGINT end the server; requires the main
                thread.

        Raises:
            OSError: no model can be loaded, or a port is in use.
        """
        options = self.options
        # Without files, the server could not even answer 503.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = max(soft, min(hard, 4 * options.max_connections))
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            if handle_signals:
                for number in (signal.SIGTERM, signal.SIGINT):
                    self._loop.add_signal_handler(number, self._stopping.set)
                    stack.callback(self._loop.remove_signal_handler, number)
            threads = ThreadPoolExecutor(options.parallel_batches, "batch")
            executor = stack.enter_context(threads)
            stack.callback(gc.unfreeze)  # see `Models`
            models = self.models = Models(options, executor, self.metrics)
            await models.start()
            server, runner = await self._open_http(stack)
            rpc = await self._open_grpc()
            watcher = self._loop.create_task(models.watch())
            logging.info("Serving %s at %s:%d", models.name, options.host, self.port)
            ready()
            await self._stopping.wait()
            self.draining = True
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
            # Accept no new connections, but answer the requests in progress.
            server.close()
            rpc_end = [] if rpc is None else [rpc.stop(options.drain_timeout)]
            await asyncio.gather(self._drain(), *rpc_end)
            logging.info("The server has stopped.")

    async def _open_http(self, stack):
        options, routes = self.options, Routes(self)
        web_app = web.Application(middlewares=[routes.middleware])
        routes.add_to(web_app)
        if options.gallery_dir:
            gallery = GalleryRoutes(self)
            stack.callback(gallery.close)
            gallery.add_to(web_app)
        if options.detect:
            web_app.router.add_post("/faces", FaceRoute(self).faces)
        # No limit of memory counts heads of requests that wait for another's answer.
        web_protocol.MAX_MSG_QUEUE_SIZE = 1
        runner = web.AppRunner(web_app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        make = functools.partial(Protocol, runner.server, options, self._connections)
        if self._tls:
            make = functools.partial(tls.wrap, make, self._tls, options)
        stack.push_async_callback(runner.cleanup)
        try:
            server = await self._loop.create_server(
                make, options.host, options.port, backlog=128
            )
        except OSError as error:
            raise _not_bound("port", options.host, options.port, error) from error
        stack.callback(server.close)
        self.port = server.sockets[0].getsockname()[1]
        return server, runner

    async def _open_grpc(self):
        host, port = self.options.host, self.options.grpc_port
        if port is None:
            return None
        module = "plsc_tf.serving.server.grpc_service"
        grpc_service = require_package(module, "serving", "gRPC")
        server = grpc_service.make_server(self)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if not self.options.local:
            text = "gRPC's port %d needs a trusted network or a proxy: see SECURITY.md"
            logging.warning(text, port)
        try:
            self.grpc_port = grpc_service.open_port(server, address, self.options)
        except RuntimeError as error:
            raise _not_bound("grpc_port", host, port, error) from error
        await server.start()
        return server

    async def _drain(self):
        """Waits until no HTTP request is in progress, up to the time limit."""
        end = self._loop.time() + self.options.drain_timeout
        while self._loop.time() < end and any(one.busy for one in self._connections):
            await asyncio.sleep(0.01)


def _not_bound(option, host, port, error):
    return OSError(
        f"Cannot listen on {option}={port} of host={host!r}: {error}. Stop the other "
        f"server, or set {option}=0 to use a free port."
    )


class Metrics:
    """One server's Prometheus metrics, in a separate registry.

    Attributes:
        images, batches, loads, waiting, connections, version, gallery: metrics that
            other modules update.
    """

    def __init__(self):
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)
        counter = functools.partial(prometheus.Counter, registry=registry)
        gauge = functools.partial(prometheus.Gauge, registry=registry)
        histogram = functools.partial(prometheus.Histogram, registry=registry)
        labels = ["interface", "status"]
        self._requests = counter("plsc_tf_requests", "Answered requests.", labels)
        seconds = "plsc_tf_request_seconds", "Seconds.", ["interface"]
        self._seconds = histogram(*seconds, buckets=_SECONDS)
        self.images = counter("plsc_tf_images", "Images computed.")
        sizes = [1 << power for power in range(11)]
        text = "Images per batch, without copies."
        self.batches = histogram("plsc_tf_batch_images", text, buckets=sizes)
        text = "Attempts to load a version, by result."
        self.loads = counter("plsc_tf_model_loads", text, ["result"])
        self.waiting = gauge("plsc_tf_waiting_images", "Waiting images.")
        self.connections = gauge("plsc_tf_connections", "Open HTTP connections.")
        self.version = gauge("plsc_tf_model_version", "Newest served version.")
        self.gallery = gauge("plsc_tf_gallery_faces", "Faces in the gallery.")

    def request(self, interface: str, status: int | str, seconds: float) -> None:
        """Counts an answer."""
        self._requests.labels(interface, str(status)).inc()
        self._seconds.labels(interface).observe(seconds)

    def text(self) -> bytes:
        """Returns all metrics in Prometheus's text format."""
        return prometheus.generate_latest(self._registry)
