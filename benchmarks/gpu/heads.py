"""Steps B and C: the head's step, alone and beside arcface_torch's."""

import dataclasses
import math
import subprocess

from benchmarks import head, options, peer
from benchmarks.gpu.parts import NotAvailableError

MS = 1e3


def step(*, tile_mb=None, tf32=True, **case):
    """Figures of `benchmarks.head` for one case.

    Args:
        tile_mb: megabytes of weights in a tile; None: the head's default.
        tf32: whether float32 products may use TF32.
        **case: fields of `HeadCase`.
    """
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    case = options.HeadCase(**case)
    if tile_mb is not None:
        rows = max(1, int(case.sample_rate * case.num_classes))
        tiles = math.ceil(4e-6 * rows * case.emb_size / tile_mb)
        case = dataclasses.replace(case, tile_rows=-(-rows // tiles))
    found = head.measure(case)
    return {
        "classes": case.num_classes,
        "batch": case.global_batch,
        "rate": case.sample_rate,
        "products": case.head_dtype or ("TF32" if tf32 else "float32"),
        "tile_mb": tile_mb or "default",
        **_figures(found),
    }


def peers(*, checkout, python, **case):
    """The same of arcface_torch, one rank.

    Args:
        checkout: folder with its code, or "".
        python: a Python with PyTorch.
        **case: fields of `HeadCase`; `peer_precision` is "float32", "tf32" or
            "float16".
    """
    case = options.HeadCase(**case, peer=checkout, peer_python=python)
    require(checkout, python)
    found = peer.measure(case)
    return {
        "classes": case.num_classes,
        "batch": case.global_batch,
        "rate": case.sample_rate,
        "products": f"{case.peer_precision}, arcface_torch",
        "tile_mb": None,
        **_figures(found),
    }


def _figures(found):
    """The figures of `benchmarks.head`, or of its peer, that the table shows."""
    products = found.get("products_best_s")
    return {
        "step_ms": MS * found["step_s"],
        "fastest_ms": MS * found["step_min_s"],
        "bare_products_ms": products and MS * products,
        "ratio": products and found["step_s"] / products,
        "memory_gb": max(found.get("peak_device_gb", [found["peak_rss_gb"]])),
        "loss": found["loss_last"],
        "details": found,
    }


def compared(parts):
    """Compares the fastest precision of each library.

    Args:
        parts: the parts of step C, with their `figures`.

    Returns:
        list of dicts, one per size and sample rate that both libraries have.
    """
    fastest = {}
    for part in parts:
        figures = part.get("figures")
        if figures:
            size = tuple(figures[name] for name in ("classes", "batch", "rate"))
            sides = fastest.setdefault(size, {})
            side = "theirs" if "arcface_torch" in figures["products"] else "ours"
            sides[side] = min(sides.get(side, math.inf), figures["step_ms"])
    return [
        {
            "classes": classes,
            "batch": batch,
            "rate": rate,
            "plsc_tf_ms": sides["ours"],
            "arcface_torch_ms": sides["theirs"],
            "times_as_fast": sides["theirs"] / sides["ours"],
        }
        for (classes, batch, rate), sides in fastest.items()
        if len(sides) > 1
    ]


def require(checkout, python):
    """Raises NotAvailableError unless arcface_torch can run."""
    if not checkout:
        raise NotAvailableError(
            "--peer names no checkout of insightface, so arcface_torch was not run."
        )
    peer.find_checkout(checkout)
    done = subprocess.run([python, "-c", "import torch"], capture_output=True)
    if done.returncode:
        raise NotAvailableError(
            f"{python} has no PyTorch, so arcface_torch was not run. Name another "
            "Python with --peer_python."
        )
