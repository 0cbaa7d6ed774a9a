"""What is said of a tensor that is not finite."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

# Numbers of examples or classes that a finding holds, and that its text shows.
KEPT = 16
SHOWN = 4
# Kinds of findings whose rows are examples of the batch.
ADVICE = "Lower the learning rate, warm up, or clip the gradients (max_gradient_norm)"
BY_EXAMPLE = ("images", "output", "embeddings", "loss", "embedding gradient")


@dataclasses.dataclass(frozen=True)
class Finding:
    """The first tensor that is not finite.

    Attributes:
        kind: "images", "weight", "output", "penalty", "embeddings", "auxiliary loss",
            "class weight", "loss", "embedding gradient", "gradient" or "class
            gradient".
        name: of the layer, weight or array.
        shape: of the tensor.
        dtype: of the tensor.
        nan: how many of its numbers are NaN.
        inf: how many are infinite.
        rows: the first few rows that are not finite: numbers of examples in the
            global batch (kinds `BY_EXAMPLE`) or of classes; empty where rows mean
            neither.
    """

    kind: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    nan: int
    inf: int
    rows: tuple[int, ...] = ()

    def __str__(self):
        words = {
            "images": "the images of the batch",
            "weight": f"the weight {self.name}",
            "output": f"the output of layer {self.name}",
            "penalty": "the penalty that layers add to the loss",
            "embeddings": "the embeddings",
            "auxiliary loss": "the loss of the auxiliary logits",
            "class weight": f"the head's {self.name}",
            "loss": "the loss",
            "embedding gradient": "the gradient of the embeddings",
            "gradient": f"the gradient of {self.name}",
            "class gradient": f"the gradient of the head's {self.name}",
        }[self.kind]
        rows = ""
        if self.rows:
            what = "examples" if self.kind in BY_EXAMPLE else "classes"
            listed = ", ".join(map(str, self.rows[:SHOWN]))
            rows = f"; {what} {listed}{', …' if len(self.rows) > SHOWN else ''}"
        shape = "×".join(map(str, self.shape)) or "scalar"
        return (
            f"{words} ({self.dtype} {shape}: {self.nan} NaN, {self.inf} infinite{rows})"
        )


def describe(finding: Finding | None, step: int) -> tuple[str, str]:
    """A sentence about the tensor that is not finite in a step, and what to do.

    Args:
        finding: the `Finding`, or None where the batch is finite when it is run again.
        step: number of the step.

    Returns:
        (the sentence, the advice).
    """
    if finding is None:
        return (
            f"The loss or a gradient was not finite in step {step}, but was when the "
            "batch was run again: random layers, such as dropout, drew other numbers.",
            ADVICE,
        )
    if finding.kind == "images":
        values = "NaN" if finding.nan else "infinite values"
        details = str(finding).split(" (", 1)[1]
        return (
            f"The images of the batch of step {step} contain {values} ({details}.",
            "Mend these images, or leave them out",
        )
    return f"The first tensor that is not finite in step {step} is {finding}.", ADVICE


def examine(
    kind: str, name: str, values: Any, first: int = 0, rows: bool = True
) -> Finding | None:
    """A `Finding` where `values` are not finite, else None.

    Args:
        kind: of the tensor, see `Finding`.
        name: of the tensor.
        values: tensor or array.
        first: number of its first row.
        rows: whether its rows are examples or classes.
    """
    if all_finite(values):
        return None
    dtype = tf.as_dtype(values.dtype)
    values = np.asarray(tf.cast(values, tf.float64))
    bad = ~np.isfinite(values)
    numbers: tuple[int, ...] = ()
    if rows and values.ndim:
        where = np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))
        numbers = tuple(first + int(row) for row in where[:KEPT])
    return Finding(
        kind=kind,
        name=name,
        shape=tuple(values.shape),
        dtype=dtype.name,
        nan=int(np.isnan(values).sum()),
        inf=int(np.isinf(values).sum()),
        rows=numbers,
    )


def all_finite(values: Any) -> bool:
    """Whether a tensor or array holds neither NaN nor infinities."""
    if not tf.as_dtype(values.dtype).is_floating:
        return True
    return bool(tf.reduce_all(tf.math.is_finite(values)))
