"""Text descriptions of a network's layers and variables."""

import contextlib
import functools

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf import private_apis
from plsc_tf.evaluation import report
from plsc_tf.reporting.recorder import StepCallback

FIRST_VALUES = 4


@contextlib.contextmanager
def watched(network, see):
    """Calls `see(layer, outputs)` whenever a layer's call returns.

    Args:
        network: the Keras model; restored at the end of the block.
        see: the function to call.
    """

    def call_and_see(layer, call, /, *args, **kwargs):
        outputs = call(*args, **kwargs)
        see(layer, outputs)
        return outputs

    def restore(layer, call):
        del layer.call
        if call is not None:
            layer.call = call

    with contextlib.ExitStack() as stack:
        for layer in private_apis.layers_inside(network, include_self=True):
            stack.callback(restore, layer, vars(layer).get("call"))
            layer.call = functools.partial(call_and_see, layer, layer.call)
        yield


class LayerCheck(StepCallback):
    """Logs each layer's parameters and outputs for the first batch (Paddle course).

    Before the first step, the network processes the first replica's part of the batch
    once more. The model does not change.

    Args:
        content: whether to add statistics and first values (check_content).
    """

    def __init__(self, content: bool = False):
        super().__init__()
        self.content, self._done = content, False

    def on_train_batch_begin(self, batch, logs=None):
        """Logs the layers before the first step."""
        if self._done:
            return
        self._done = True
        local = self.model.strategy.experimental_local_results
        images = local(self.model.trainer.step_batch[0])[0]
        lines = describe(self.model, images, content=self.content)
        logging.info("Layers, for the first batch:\n%s", report.format_table(lines))


def describe(model, images, content=False):
    """Describes the network's layers and the head.

    Args:
        model: the `Classifier`.
        images: `[N, h, w, 3]`, values in [0, 255].
        content: whether to add statistics and first values.

    Returns:
        Table rows: (name, shape and content).
    """
    rows = [("images", _tell(images, content))]

    def see(layer, outputs):
        # Layers with sublayers also list their sublayers' weights; skip those.
        whole = not any(True for _ in private_apis.layers_inside(layer))
        for weight in layer.weights if whole else ():
            rows.append((f"  {weight.path}", _tell(weight, content)))
        for output in filter(tf.is_tensor, tf.nest.flatten(outputs)):
            name = f"{type(layer).__name__} {layer.name}"
            rows.append((name, _tell(output, content)))

    with watched(model.backbone, see):
        groups = model.trainable_variables, model.non_trainable_variables
        values = ([variable.value for variable in group] for group in groups)
        model.stateless_call(*values, tf.convert_to_tensor(images), training=True)
    for name, array in model.head.arrays().items():
        rows.append((f"head {name}", f"{_shape(array)} {array.dtype}"))
    return rows


def _tell(tensor, content):
    text = f"{_shape(tensor)} {keras.backend.standardize_dtype(tensor.dtype)}"
    if not content:
        return text
    values = np.asarray(tf.cast(tf.convert_to_tensor(tensor), tf.float32))
    if not values.size:
        return text
    first = " ".join(f"{value:.4g}" for value in values.reshape(-1)[:FIRST_VALUES])
    text = f"{text}  mean {values.mean():.4g}  deviation {values.std():.4g}"
    return f"{text}  min {values.min():.4g}  max {values.max():.4g}  first {first}"


def statistics(model) -> str:
    """Returns the text that `print_model_statistics` prints.

    It consists of Keras's summary of the network, with the totals, and every trainable
    variable with its shape.

    Args:
        model: the `Classifier`.
    """
    network, head = model.backbone.trainable_variables, model.head.arrays()
    rows = [(variable.path, _shape(variable)) for variable in network]
    rows += [(f"head/{name}", _shape(array)) for name, array in head.items()]
    parts: list[str] = []
    model.backbone.summary(
        print_fn=lambda text, **_: parts.append(text), expand_nested=True
    )
    return "\n".join([*parts, "Trainable variables:", report.format_table(rows)])


def _shape(array):
    return "×".join(map(str, array.shape)) or "scalar"
