"""Checks of a head's options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plsc_tf.heads.kernels import DTYPES
from plsc_tf.heads.margins import MarginLoss, require

if TYPE_CHECKING:
    from plsc_tf.heads.base import Head


def check_options(head: Head) -> None:
    """Raises ValueError if an option of a head is out of range."""
    loss, deviation = head.loss, head.initial_deviation
    rule = "loss must be a plsc_tf.MarginLoss, such as plsc_tf.ARCFACE or SOFTMAX"
    require(isinstance(loss, MarginLoss), rule, loss=loss)
    for names, condition, rule in (
        ("num_classes", head.num_classes >= 1, "num_classes must be positive"),
        ("scale", head.scale > 0, "scale must be positive"),
        (
            "initial_deviation",
            deviation is None or deviation >= 0,
            "initial_deviation must not be negative",
        ),
        (
            "initializer initial_deviation",
            head.initializer is None or deviation is None,
            "Give one of initializer and initial_deviation",
        ),
        (
            "label_smoothing",
            0 <= head.label_smoothing < 1,
            "label_smoothing must be in [0, 1)",
        ),
        ("logits_mb", head.logits_mb >= 0, "logits_mb must not be negative"),
        ("sub_centers", head.sub_centers >= 1, "sub_centers must be positive"),
        (
            "sub_centers loss",
            head.sub_centers == 1 or loss.normalized,
            "The nearest center is chosen by its cosine, which plain softmax does not "
            "have: use a margin loss, or sub_centers=1",
        ),
        ("dtype", head.dtype in DTYPES, f"dtype must be one of {DTYPES}"),
    ):
        require(
            condition, rule, **{name: getattr(head, name) for name in names.split()}
        )
