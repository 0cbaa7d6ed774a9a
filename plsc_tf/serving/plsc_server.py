"""PLSCServer: the server from Python, with the names of PLSC.

from plsc_tf import PLSCServer
PLSCServer().with_model("serving/face").run(gpu_index=0, port=8010)
"""

import asyncio
import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
import threading

from plsc_tf.flags.option import options_of
from plsc_tf.flags.server import Server

_EXTRA = ("aiohttp", "grpc", "orjson", "prometheus_client", "tensorflow_serving")


def run(options, ready=None):
    """Serves in this process until `stop` of what `ready` gets, or SIGTERM.

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
    main_thread = threading.current_thread() is threading.main_thread()
    asyncio.run(
        app.serve(
            ready=None if ready is None else lambda: ready(app),
            handle_signals=main_thread,
        )
    )


def _choose_gpu(index):
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        if index:
            raise ValueError(
                f"gpu_index must be 0 on a machine without GPUs. Received: {index}."
            )
        return
    if index >= len(gpus):
        raise ValueError(
            f"gpu_index must be below {len(gpus)}, the number of GPUs. Received: "
            f"gpu_index={index}."
        )
    tf.config.set_visible_devices(gpus[index], "GPU")
    tf.config.experimental.set_memory_growth(gpus[index], True)


class PLSCServer:
    """A server of one exported model.

    Example: `PLSCServer().with_model("serving/face").run(port=8010)`.

    Attributes:
        port: where `run` listens for HTTP, once it does.
        grpc_port: the same for gRPC.
    """

    def __init__(self, with_gpu=True, **options):
        """Takes the options of `python -m plsc_tf.serve`, by name.

        Args:
            with_gpu: False leaves GPUs alone (PLSC with_gpu).
            **options: as `latency_ms=50`; see `plsc_tf.flags.server.Server`.

        Raises:
            ValueError, TypeError: an option is unknown, or its value is not allowed.
        """
        self._options = Server(**options)
        self._with_gpu = with_gpu
        self._app = self._thread = self._error = None
        self._processes = []
        self._ready = threading.Event()

    def with_model(self, model_path):
        """Says what to serve; returns the server itself.

        Args:
            model_path: folder with the version folders of an export (PLSC model_path).
        """
        self._options = dataclasses.replace(
            self._options, model_path=os.fspath(model_path)
        )
        return self

    def run(self, gpu_index=0, port=8866, *, block=True):
        """Serves until `stop`, SIGTERM or Ctrl-C.

        Args:
            gpu_index: the GPU to use, where there are any.
            port: port of HTTP; 0: a free one, see the attribute `port`.
            block: False serves in a thread and returns when requests are answered.

        Raises:
            RuntimeError: it runs already.
            ValueError, OSError, ModuleNotFoundError: see `run` of this module.
        """
        if self._app is not None or self._processes:
            raise RuntimeError("This server runs already; call stop() first.")
        options = dataclasses.replace(self._options, gpu_index=gpu_index, port=port)
        if not self._with_gpu:
            import tensorflow as tf

            tf.config.set_visible_devices([], "GPU")
        if block:
            try:
                run(options, self._set_app)
            finally:
                self._app = None
            return
        self._ready.clear()
        self._error = None
        self._thread = threading.Thread(
            target=self._run_in_thread, args=(options,), name="plsc-server"
        )
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def run_multi(self, gpu_index_list, port_list, *, block=True):
        """Serves with one process per port, each with its GPU.

        Args:
            gpu_index_list: indices of GPUs, one per port.
            port_list: ports of HTTP.
            block: False returns when the processes have been started.

        Raises:
            ValueError: the lists do not go together, or there is a gallery, which
                belongs to one process.
        """
        if not port_list or len(gpu_index_list) != len(port_list):
            raise ValueError(
                "run_multi takes as many GPUs as ports, one at least. Received: "
                f"gpu_index_list={gpu_index_list}, port_list={port_list}."
            )
        if self._options.gallery_dir:
            raise ValueError(
                "A gallery belongs to one process: leave gallery_dir out of run_multi. "
                f"Received: gallery_dir={self._options.gallery_dir!r}."
            )
        if self._options.grpc_port:
            raise ValueError(
                "Several processes cannot share a port: grpc_port must be None or 0 in "
                f"run_multi. Received: grpc_port={self._options.grpc_port}."
            )
        if self._app is not None or self._processes:
            raise RuntimeError("This server runs already; call stop() first.")
        environ = dict(os.environ)
        if not self._with_gpu:
            environ["CUDA_VISIBLE_DEVICES"] = "-1"
        for gpu_index, port in zip(gpu_index_list, port_list, strict=True):
            options = dataclasses.replace(self._options, gpu_index=gpu_index, port=port)
            command = [sys.executable, "-m", "plsc_tf.serve", *_arguments(options)]
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

    def stop(self):
        """Ends what `run` or `run_multi` has started; requests are still answered."""
        if self._app is not None:
            self._app.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(self._options.drain_timeout + 10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = []

    @property
    def port(self):
        """The port of HTTP, None before it is listened at."""
        return None if self._app is None else self._app.port

    @property
    def grpc_port(self):
        """The port of gRPC, None before it is listened at."""
        return None if self._app is None else self._app.grpc_port

    def _set_app(self, app):
        self._app = app
        self._ready.set()

    def _run_in_thread(self, options):
        try:
            run(options, self._set_app)
        except Exception as error:  # noqa: BLE001 - raised in the caller's thread
            self._error = error
        finally:
            self._app = None
            self._ready.set()


def _arguments(options):
    """The command line that says the same."""
    return [
        f"--{item.name}={item.format(getattr(options, item.name))}"
        for item in options_of(type(options))
    ]
