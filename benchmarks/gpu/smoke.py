"""Step A: does TensorFlow compute on this GPU, and does a training run there?"""

import json
import pathlib
import subprocess
import tempfile
import time

import numpy as np


def devices():
    """Which GPU, driver and libraries there are."""
    import keras
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return {
        "gpus": len(gpus),
        "gpu": ", ".join(one.get("device_name", "?") for one in details),
        "compute_capability": str([one.get("compute_capability") for one in details]),
        "driver": nvidia_smi("driver_version"),
        "memory": nvidia_smi("memory.total"),
        "cuda": build.get("cuda_version", "none"),
        "cudnn": build.get("cudnn_version", "none"),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }


def nvidia_smi(field):
    """Returns what nvidia-smi says about the GPUs, or "none" without it."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    return ", ".join(done.stdout.split("\n")).strip(", ") or "none"


def kernels(size):
    """A product, a convolution in float16 with its gradient, and a product by XLA.

    Args:
        size: rows and columns of the matrices.
    """
    import tensorflow as tf

    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((2, size, size))
    exact = a @ b
    first, second = tf.constant(a, tf.float32), tf.constant(b, tf.float32)
    figures = {}
    for tf32 in (True, False):
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
        name = "product_tf32" if tf32 else "product_float32"
        figures |= _error(name, tf.matmul(first, second), exact)
    compiled = tf.function(tf.matmul, jit_compile=True)(first, second)
    figures |= _error("product_xla", compiled, exact)
    half = tf.matmul(tf.cast(first, tf.bfloat16), tf.cast(second, tf.bfloat16))
    figures |= _error("product_bfloat16", half, exact)
    figures |= _convolution(generator)
    figures["device"] = tf.matmul(first, second).device.rpartition("/")[-1]
    return figures


def _error(name, found, exact):
    """The error, relative to the largest number; NaN is an error, too."""
    error = float(np.abs(found.numpy().astype(np.float64) - exact).max())
    error /= np.abs(exact).max()
    if not error < 0.1:
        raise ArithmeticError(f"{name} is wrong: its relative error is {error:.3g}")
    return {f"{name}_error": error}


def _convolution(generator):
    """Errors of a convolution in float16 and of its gradients, against float32."""
    import tensorflow as tf

    images = tf.constant(generator.standard_normal((8, 16, 16, 8)), tf.float32)
    filters = tf.constant(generator.standard_normal((3, 3, 8, 16)), tf.float32)
    results = {}
    for dtype in (tf.float16, tf.float32):
        x, w = tf.cast(images, dtype), tf.cast(filters, dtype)
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.conv2d(x, w, 1, "SAME")
        results[dtype] = y, *tape.gradient(y, [x, w])
    names = ("convolution", "convolution_gradient", "filter_gradient")
    pairs = zip(results[tf.float16], results[tf.float32], strict=True)
    figures = {}
    for name, (half, whole) in zip(names, pairs, strict=True):
        figures |= _error(f"{name}_float16", half, whole.numpy().astype(np.float64))
    return figures


def training(flags, steps):
    """Trains for some steps, resumes the run, and looks at what it wrote.

    Args:
        flags: options of the training.
        steps: steps before the resume, and after it.
    """
    with tempfile.TemporaryDirectory(prefix="plsc_tf-gpu-") as folder:
        run = pathlib.Path(folder, "run")
        seconds = []
        for stop in (steps, 2 * steps):
            start = time.perf_counter()
            words = [*flags, f"--stop_at_step={stop}", f"--model_save_dir={run}"]
            command("train", *words)
            seconds.append(time.perf_counter() - start)
        results = json.loads((run / "results.json").read_text("utf-8"))
        if not (run / "report.html").exists():
            raise FileNotFoundError("The run has no report; see the log.")
        report = (run / "report.html").read_text("utf-8")
        if results["steps"] != 2 * steps or "was resumed 1 time." not in report:
            raise RuntimeError(f"The run did not resume: {results}")
        return {
            "steps": results["steps"],
            "loss": results["loss"],
            "first_run_s": seconds[0],
            "resumed_run_s": seconds[1],
            "images_per_second": results["images_per_second"],
        }


def command(name, *words):
    """Runs `python -m plsc_tf.<name>` in this process.

    Raises:
        RuntimeError: it ended with another status than 0.
    """
    import importlib

    from plsc_tf.options import cli

    module = importlib.import_module(f"plsc_tf.{name}")
    try:
        cli.main(module.main, module.GROUPS, module.__doc__, list(words))
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"plsc_tf.{name} ended with status {end.code}") from end
