"""PLSCServer: runs the server from Python, with PLSC's method names.

from plsc_tf import PLSCServer
PLSCServer().with_model("serving/face").run(gpu_index=0, port=8010)
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from plsc_tf.flags.option import options_of
from plsc_tf.flags.server import Server
from plsc_tf.requirements import require, require_package

# Seconds between two looks at the processes of `run_multi`.
_POLL_SECONDS = 0.2


def run(options: Server, ready: Callable) -> None:
    """Serves in this process until `App.stop`, SIGTERM or SIGINT.

    Args:
        options: the option group `server`.
        ready: called with the `App` once the server answers requests.

    Raises:
        ImportError: the extra `serving` is not installed.
        ValueError: the GPU does not exist, or a file of keys or of TLS is malformed.
        OSError: no model or file can be read, or a port is in use.
    """
    server = require_package("plsc_tf.serving.server.app", "serving", "The server")
    _choose_gpu(options.gpu_index)
    app = server.App(options)
    main_thread = threading.current_thread() is threading.main_thread()
    asyncio.run(app.serve(lambda: ready(app), handle_signals=main_thread))


def _choose_gpu(index):
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    rule = f"gpu_index must be below the number of GPUs, {len(gpus)}, or 0 without any"
    require(index < max(1, len(gpus)), rule, gpu_index=index)
    if gpus:
        tf.config.set_visible_devices(gpus[index], "GPU")
        tf.config.experimental.set_memory_growth(gpus[index], True)


class PLSCServer:
    """A server of one exported model.

    Example: `PLSCServer().with_model("serving/face").run(port=8010)`.
    """

    def __init__(self, with_gpu: bool = True, **options):
        """Accepts the options of `python -m plsc_tf.serve` as keyword arguments.

        Args:
            with_gpu: whether to use GPUs (PLSC with_gpu).
            **options: for example `latency_ms=50`; see `plsc_tf.flags.server.Server`.

        Raises:
            ValueError, TypeError: an option is unknown, or its value is not allowed.
        """
        self._options = Server(**options)
        self._with_gpu = with_gpu
        self._app = self._thread = None
        self._processes = []

    def with_model(self, model_path: str | os.PathLike) -> "PLSCServer":
        """Sets the model to serve; returns the server itself.

        Args:
            model_path: folder with the version folders of an export (PLSC model_path).
        """
        path = os.fspath(model_path)
        self._options = dataclasses.replace(self._options, model_path=path)
        return self

    def run(self, gpu_index: int = 0, port: int = 8866, *, block: bool = True) -> None:
        """Serves until `stop`, SIGTERM or Ctrl-C.

        Args:
            gpu_index: index of the GPU to use, if the machine has any.
            port: HTTP port; 0 chooses a free port, which the attribute `port` returns.
            block: if False, serves in a thread and returns once requests are answered.

        Raises:
            RuntimeError: the server is already running.
            ValueError, OSError, ImportError: see this module's function `run`.
        """
        self._check_stopped()
        options = dataclasses.replace(self._options, gpu_index=gpu_index, port=port)
        if not self._with_gpu:
            import tensorflow as tf

            tf.config.set_visible_devices([], "GPU")
        started = concurrent.futures.Future()

        def ready(app):
            self._app = app
            started.set_result(None)

        def serve():
            try:
                run(options, ready)
            except Exception as error:
                if block or started.done():
                    raise
                started.set_exception(error)
            finally:
                self._app = None

        if block:
            serve()
            return
        self._thread = threading.Thread(target=serve, name="plsc-server")
        self._thread.start()
        started.result()

    def run_multi(
        self,
        gpu_index_list: Sequence[int],
        port_list: Sequence[int],
        *,
        block: bool = True,
    ) -> None:
        """Serves with one process per port, each with its own GPU.

        Args:
            gpu_index_list: indices of GPUs, one per port.
            port_list: HTTP ports.
            block: if False, returns as soon as the processes have been started.

        Raises:
            ValueError: the lists are empty or differ in length, or the options name a
                gallery or a gRPC port, which several processes cannot share.
            RuntimeError: the server is already running, or a process failed.
        """
        lists = {"gpu_index_list": gpu_index_list, "port_list": port_list}
        rule = "gpu_index_list and port_list must have the same length, at least 1"
        require(0 < len(port_list) == len(gpu_index_list), rule, **lists)
        shared = self._options.gallery_dir or self._options.grpc_port
        rule = "run_multi starts processes, which cannot share gallery_dir or grpc_port"
        require(not shared, rule, "Remove gallery_dir, and set grpc_port to None or 0")
        self._check_stopped()
        hidden = {} if self._with_gpu else {"CUDA_VISIBLE_DEVICES": "-1"}
        known = options_of(Server)
        for gpu_index, port in zip(gpu_index_list, port_list, strict=True):
            options = dataclasses.replace(self._options, gpu_index=gpu_index, port=port)
            arguments = [f"--{x.name}={x.format(vars(options)[x.name])}" for x in known]
            command = [sys.executable, "-m", "plsc_tf.serve", *arguments]
            self._processes.append(subprocess.Popen(command, env=os.environ | hidden))
        if not block:
            return
        if threading.current_thread() is threading.main_thread():
            # By default, the processes would outlive this one.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        failed = {}
        with contextlib.suppress(KeyboardInterrupt):
            while all(process.poll() is None for process in self._processes):
                time.sleep(_POLL_SECONDS)
            codes = zip(port_list, self._processes, strict=True)
            failed = {port: one.returncode for port, one in codes if one.returncode}
        self.stop()
        rule = "A server ended, so the others were stopped"
        require(not failed, rule, raises=RuntimeError, status_by_port=failed)

    def stop(self) -> None:
        """Ends `run` or `run_multi` after answering the requests in progress."""
        if self._app is not None:
            self._app.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for process in self._processes:
            # `terminate` has no effect on a process that has already ended.
            process.terminate()
        for process in self._processes:
            try:
                process.wait(self._options.drain_timeout + 10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = []

    @property
    def port(self) -> int | None:
        """The HTTP port; None unless `run` is serving."""
        return None if self._app is None else self._app.port

    @property
    def grpc_port(self) -> int | None:
        """The gRPC port; None unless `run` is serving with gRPC."""
        return None if self._app is None else self._app.grpc_port

    def _check_stopped(self):
        if self._app is not None or self._processes:
            raise RuntimeError("The server is already running. Call stop() first.")
