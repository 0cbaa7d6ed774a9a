"""A running server: sockets, signals, start and end."""

import asyncio
import concurrent.futures
import contextlib
import signal

from absl import logging
from aiohttp import web

from plsc_tf.serving.server.guard import Guard
from plsc_tf.serving.server.http_body import Bodies
from plsc_tf.serving.server.http_routes import Routes, make_middleware
from plsc_tf.serving.server.limits import Limits
from plsc_tf.serving.server.metrics import Metrics
from plsc_tf.serving.server.models import Models
from plsc_tf.serving.server.service import Service

# Seconds that a connection may stay open without a request, and that what a refused
# request still sends is read and thrown away.
_IDLE_SECONDS = 75.0
_LINGER_SECONDS = 2.0


class App:
    """A server in the event loop that calls `serve`.

    Attributes:
        port, grpc_port: where it listens, once `serve` calls back.
        draining: whether it is about to end.
    """

    def __init__(self, options):
        """Takes the option group `server`; nothing is opened yet."""
        self._options = options
        self.port = self.grpc_port = None
        self.draining = False
        self._loop = self._stopping = None

    def stop(self):
        """Asks the server to end, from any thread; it answers what it has."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def serve(self, ready=None, handle_signals=False):
        """Serves until `stop` or, if asked to, SIGTERM or SIGINT.

        Args:
            ready: called without arguments when requests are answered.
            handle_signals: whether signals end it; in the main thread only.

        Raises:
            OSError: no model can be loaded, or a port is in use.
        """
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            if handle_signals:
                for number in (signal.SIGTERM, signal.SIGINT):
                    self._loop.add_signal_handler(number, self._stopping.set)
                    stack.callback(self._loop.remove_signal_handler, number)
            executor = stack.enter_context(
                concurrent.futures.ThreadPoolExecutor(
                    self._options.parallel_batches, thread_name_prefix="batch"
                )
            )
            metrics = Metrics()
            models = Models(self._options, executor, metrics)
            await models.start()
            service = Service(models, Limits.of(self._options))
            http = await self._open_http(stack, service, metrics)
            rpc = await self._open_grpc(stack, service, metrics)
            watcher = None
            if self._options.poll_seconds:
                watcher = self._loop.create_task(models.watch())
            logging.info(
                "Serving %s at http://%s:%d%s",
                models.name,
                self._options.host,
                self.port,
                "" if rpc is None else f", gRPC at port {self.grpc_port}",
            )
            if ready is not None:
                ready()
            await self._stopping.wait()
            self.draining = True
            await self._close(watcher, http, rpc, models)

    async def _open_http(self, stack, service, metrics):
        options = self._options
        bodies = Bodies(options)
        app = web.Application(
            middlewares=[make_middleware(metrics, self)],
            client_max_size=int(options.max_body_mb * 1e6),
        )
        Routes(service, bodies, metrics, self).add_to(app)
        if options.gallery_dir:
            from plsc_tf.serving.server.gallery_routes import GalleryRoutes

            routes = GalleryRoutes(service, bodies, metrics, options)
            stack.callback(routes.close)
            routes.add_to(app)
        runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            # The guard ends connections without a request.
            keepalive_timeout=2 * _IDLE_SECONDS,
            lingering_time=_LINGER_SECONDS,
            handler_cancellation=True,
        )
        await runner.setup()
        connections = set()

        def make_protocol():
            return Guard(
                runner.server(),
                connections,
                options,
                _IDLE_SECONDS,
                metrics.connections,
            )

        try:
            server = await self._loop.create_server(
                make_protocol, options.host, options.port, backlog=1024
            )
        except OSError as error:
            await runner.cleanup()
            raise _not_bound("port", options.host, options.port, error) from error
        stack.push_async_callback(runner.cleanup)
        stack.callback(server.close)
        self.port = server.sockets[0].getsockname()[1]
        return server, runner, connections

    async def _open_grpc(self, stack, service, metrics):
        options = self._options
        if options.grpc_port is None:
            return None
        from plsc_tf.serving.server import grpc_service

        server = grpc_service.make_server(service, options, metrics)
        host = f"[{options.host}]" if ":" in options.host else options.host
        try:
            self.grpc_port = server.add_insecure_port(f"{host}:{options.grpc_port}")
        except RuntimeError as error:
            raise _not_bound(
                "grpc_port", options.host, options.grpc_port, error
            ) from error
        await server.start()
        return server

    async def _close(self, watcher, http, rpc, models):
        """No new connections; what has begun is answered, up to the time limit."""
        server, runner, connections = http
        seconds = self._options.drain_timeout
        if watcher is not None:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        server.close()
        ending = [self._idle(connections, seconds), models.drain(seconds)]
        if rpc is not None:
            ending.append(rpc.stop(seconds))
        await asyncio.gather(*ending)
        await runner.server.shutdown(1.0)
        logging.info("The server has ended")

    async def _idle(self, connections, seconds):
        """Waits until no connection has a request, at most `seconds`."""
        end = self._loop.time() + seconds
        while self._loop.time() < end:
            if not any(guard.busy for guard in connections):
                return
            await asyncio.sleep(0.01)


def _not_bound(option, host, port, error):
    return OSError(
        f"{option}={port} of host={host!r} cannot be listened at: {error}. Is another "
        f"server running? {option}=0 takes a free port."
    )
