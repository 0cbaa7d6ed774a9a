"""Runs Keras layers without side effects."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf


def with_values(
    function: Callable, variables: Sequence[keras.Variable], values: Sequence[tf.Tensor]
) -> tuple[Any, list[tf.Tensor | None], list[tf.Tensor]]:
    """Calls a function with values of variables, without side effects.

    Returns:
        (what the function returns, for each variable its new value, or None if the
        function did not assign one, list of the losses that layers added).
    """
    options = {"collect_losses": True, "initialize_variables": False}
    scope = keras.StatelessScope(zip(variables, values, strict=True), **options)
    before = [scope.get_current_value(v) for v in variables]
    with scope:
        result = function()
    pairs = zip(before, [scope.get_current_value(v) for v in variables], strict=True)
    return result, [None if new is old else new for old, new in pairs], scope.losses
