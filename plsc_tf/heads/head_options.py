"""Checks of a head's options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plsc_tf.heads.margins import MarginLoss, require
from plsc_tf.heads.products import DTYPES

if TYPE_CHECKING:
    from plsc_tf.heads.base import Head


def check_options(head: Head) -> None:
    """Raises ValueError if an option of a head is out of range."""
    require(
        isinstance(head.loss, MarginLoss),
        "loss must be a plsc_tf.MarginLoss, such as plsc_tf.ARCFACE or SOFTMAX",
        loss=head.loss,
    )
    rules = (
        (head.num_classes >= 1, "num_classes must be positive", "num_classes"),
        (head.scale > 0, "scale must be positive", "scale"),
        (
            head.initial_deviation is None or head.initial_deviation >= 0,
            "initial_deviation must not be negative",
            "initial_deviation",
        ),
        (
            head.initializer is None or head.initial_deviation is None,
            "Give one of initializer and initial_deviation",
            "initializer initial_deviation",
        ),
        (
            0 <= head.label_smoothing < 1,
            "label_smoothing must be in [0, 1)",
            "label_smoothing",
        ),
        (head.logits_mb >= 0, "logits_mb must not be negative", "logits_mb"),
        (head.sub_centers >= 1, "sub_centers must be positive", "sub_centers"),
        (
            head.sub_centers == 1 or head.loss.normalized,
            "The nearest of several centers is chosen by its cosine, which plain "
            "softmax does not have: use a margin loss, or sub_centers=1",
            "sub_centers loss",
        ),
        (head.dtype in DTYPES, f"dtype must be one of {DTYPES}", "dtype"),
    )
    for condition, rule, names in rules:
        require(
            condition, rule, **{name: getattr(head, name) for name in names.split()}
        )
