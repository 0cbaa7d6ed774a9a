"""PLSCServer: the server from Python, with PLSC's names.

from plsc_tf import PLSCServer
PLSCServer().with_model("serving/face").run(gpu_index=0, port=8010)
"""

import asyncio
import concurrent.futures
import dataclasses
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from plsc_tf.flags.option import options_of
from plsc_tf.flags.server import Server

_EXTRA = ("aiohttp", "grpc", "orjson", "prometheus_client", "tensorflow_serving")


def run(options: Server, ready: Callable | None = None) -> None:
    """Serves in this process until SIGTERM, or `stop` of the `App`.

    Args:
        options: the option group `server`.
        ready: called with the `App` when requests are answered.

    Raises:
        ModuleNotFoundError: the extra `serving` is not installed.
        ValueError: there is no such GPU, or no model_path.
        OSError: no model can be loaded, or a port is in use.
    """
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"The server needs {', '.join(missing)}: pip install 'plsc_tf[serving]'."
        )
    if not options.model_path:
        raise ValueError(
            "model_dir must name the folder with the version folders of an export. "
            "Received: model_dir=''."
        )
    _choose_gpu(options.gpu_index)
    from plsc_tf.serving.server.app import App

    app = App(options)
    on_ready = None if ready is None else lambda: ready(app)
    main_thread = threading.current_thread() is threading.main_thread()
    asyncio.run(app.serve(on_ready, handle_signals=main_thread))


def _choose_gpu(index):
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if index >= max(1, len(gpus)):
        raise ValueError(
            f"gpu_index must be below the number of GPUs, {len(gpus)}, or 0 on a "
            f"machine without GPUs. Received: gpu_index={index}."
        )
    if gpus:
        tf.config.set_visible_devices(gpus[index], "GPU")
        tf.config.experimental.set_memory_growth(gpus[index], True)


class PLSCServer:
    """A server of one exported model.

    Example: `PLSCServer().with_model("serving/face").run(port=8010)`.
    """

    def __init__(self, with_gpu: bool = True, **options):
        """Takes the options of `python -m plsc_tf.serve`, by name.

        Args:
            with_gpu: False leaves GPUs alone (PLSC with_gpu).
            **options: as `latency_ms=50`; see `plsc_tf.flags.server.Server`.

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
        self._options = dataclasses.replace(
            self._options, model_path=os.fspath(model_path)
        )
        return self

    def run(self, gpu_index: int = 0, port: int = 8866, *, block: bool = True) -> None:
        """Serves until `stop`, SIGTERM or Ctrl-C.

        Args:
            gpu_index: the GPU to use, if there are any.
            port: port of HTTP; 0: a free one, see the attribute `port`.
            block: False serves in a thread and returns when requests are answered.

        Raises:
            RuntimeError: it runs already.
            ValueError, OSError, ModuleNotFoundError: see `run` of this module.
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
        """Serves with one process per port, each with its GPU.

        Args:
            gpu_index_list: indices of GPUs, one per port.
            port_list: ports of HTTP.
            block: False returns when the processes have been started.

        Raises:
            ValueError: the lists differ in length, or there is a gallery or a port of
                gRPC, which several processes cannot share.
        """
        if not port_list or len(gpu_index_list) != len(port_list):
            raise ValueError(
                "run_multi takes as many GPUs as ports, one at least. Received: "
                f"gpu_index_list={gpu_index_list}, port_list={port_list}."
            )
        if self._options.gallery_dir or self._options.grpc_port:
            raise ValueError(
                "Several processes cannot share a gallery or a port: run_multi takes "
                "no gallery_dir, and grpc_port=None or 0. Received: gallery_dir="
                f"{self._options.gallery_dir!r}, grpc_port={self._options.grpc_port}."
            )
        self._check_stopped()
        environ = dict(os.environ)
        if not self._with_gpu:
            environ["CUDA_VISIBLE_DEVICES"] = "-1"
        for gpu_index, port in zip(gpu_index_list, port_list, strict=True):
            options = dataclasses.replace(self._options, gpu_index=gpu_index, port=port)
            arguments = [
                f"--{item.name}={item.format(getattr(options, item.name))}"
                for item in options_of(Server)
            ]
            command = [sys.executable, "-m", "plsc_tf.serve", *arguments]
            self._processes.append(subprocess.Popen(command, env=environ))
        if not block:
            return
        try:
            for process in self._processes:
                process.wait()
        except KeyboardInterrupt:
            pass
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends `run` or `run_multi`; requests that have begun are answered."""
        if self._app is not None:
            self._app.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for process in self._processes:
            # Does nothing to a process that has ended.
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
        """The port of HTTP, None while it does not serve."""
        return None if self._app is None else self._app.port

    @property
    def grpc_port(self) -> int | None:
        """The port of gRPC, None while it does not serve."""
        return None if self._app is None else self._app.grpc_port

    def _check_stopped(self):
        if self._app is not None or self._processes:
            raise RuntimeError("This server runs already; call stop() first.")
