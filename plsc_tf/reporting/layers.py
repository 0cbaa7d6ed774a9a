"""check_shape and check_content: what each layer holds and returns for a batch."""

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf import private_apis
from plsc_tf.evaluation import report
from plsc_tf.reporting.layer_outputs import watched

FIRST_VALUES = 4


class LayerCheck(keras.callbacks.Callback):
    """Prints each layer's parameters and outputs for the first batch (Paddle course).

    The batch of the first replica goes through the network once more, layer by layer,
    before the first step; nothing of the model changes.

    Args:
        shapes: print shapes (check_shape).
        content: print statistics and first values (check_content).
    """

    def __init__(self, shapes=True, content=False):
        super().__init__()
        self.shapes = shapes
        self.content = content
        self._done = False

    def wants(self, step):
        """Only before the first step, see `several_steps`."""
        return False

    def on_train_batch_begin(self, batch, logs=None):
        """Prints before the first step."""
        if self._done:
            return
        self._done = True
        images = self.model.strategy.experimental_local_results(
            self.model.trainer.step_batch[0]
        )[0]
        lines = describe(self.model, images, content=self.content)
        logging.info("Layers, for the first batch:\n%s", report.format_table(lines))


def describe(model, images, content=False):
    """Rows (what, shape and content) of the network's layers and of the head.

    Args:
        model: the `Classifier`.
        images: `[N, h, w, 3]` in 0 … 255.
        content: whether to add statistics and first values.
    """
    rows = [("images", _tell(images, content))]

    def see(layer, outputs):
        for weight in layer.weights if not _has_parts(layer) else ():
            rows.append((f"  {weight.path}", _tell(weight, content)))
        for output in filter(tf.is_tensor, tf.nest.flatten(outputs)):
            name = f"{type(layer).__name__} {layer.name}"
            rows.append((name, _tell(output, content)))

    with watched(model.backbone, see):
        model.stateless_call(
            [v.value for v in model.trainable_variables],
            [v.value for v in model.non_trainable_variables],
            tf.convert_to_tensor(images),
            training=True,
        )
    for name, array in model.head.arrays().items():
        shape = "×".join(map(str, array.shape))
        rows.append((f"head {name}", f"{shape} {array.dtype}"))
    return rows


def _has_parts(layer):
    """Whether a layer's weights are those of layers within it."""
    return len(list(private_apis.layers_inside(layer))) > 0


def _tell(tensor, content):
    shape = "×".join(map(str, tensor.shape)) or "scalar"
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    text = f"{shape} {dtype}"
    if not content:
        return text
    values = np.asarray(tf.cast(tf.convert_to_tensor(tensor), tf.float32))
    if not values.size:
        return text
    first = " ".join(f"{value:.4g}" for value in values.reshape(-1)[:FIRST_VALUES])
    return (
        f"{text}  mean {values.mean():.4g}  deviation {values.std():.4g}  "
        f"min {values.min():.4g}  max {values.max():.4g}  first {first}"
    )
