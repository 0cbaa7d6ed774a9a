"""The Keras layer of `linear_cross_entropy`."""

from numbers import Integral
from typing import Any

import keras
import tensorflow as tf

from plsc_tf.heads.linear_cross_entropy import IGNORE_INDEX, linear_cross_entropy
from plsc_tf.requirements import require

# The layer's arguments that it passes on.
_OF_LOSS = ("ignore_index", "label_smoothing", "logits_mb")


@keras.saving.register_keras_serializable(package="plsc_tf")
class LinearCrossEntropy(keras.layers.Layer):
    """The last layer of a classifier or language model, together with its loss.

    With labels, it returns the mean loss and adds it to the model's losses, so that
    `model.compile(optimizer)` is enough. Without labels, it returns logits.

    Example:
        ```python
        loss = plsc_tf.LinearCrossEntropy(tied_to=embedding)(hidden, labels)
        model = keras.Model([tokens, labels], loss)
        ```

    Args:
        num_classes: number of classes; with `tied_to`, None.
        tied_to: a Keras Embedding whose table is the weight; None for an own weight.
        use_bias: whether there is a bias.
        ignore_index: see `linear_cross_entropy`; masked examples have this label.
        label_smoothing: see `linear_cross_entropy`.
        logits_mb: see `linear_cross_entropy`.
        **options: see `keras.layers.Layer`.

    Raises:
        ValueError: not exactly one of `num_classes` and `tied_to` is given, or wrongly.
    """

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        tied_to: keras.layers.Embedding | None = None,
        use_bias: bool = True,
        ignore_index: int = IGNORE_INDEX,
        label_smoothing: float = 0.0,
        logits_mb: float = 60,
        **options,
    ) -> None:
        # The weights stay float32; `linear_cross_entropy` casts what it multiplies.
        super().__init__(**{"autocast": False} | options)
        rule = "LinearCrossEntropy needs either num_classes, 1 or more, or tied_to, "
        fits = tied_to is None and isinstance(num_classes, Integral) and num_classes > 0
        if num_classes is None:
            fits = isinstance(tied_to, keras.layers.Embedding)
        given = {"num_classes": num_classes, "tied_to": tied_to}
        require(fits, rule + "a Keras Embedding", **given)
        self.num_classes, self.tied_to = num_classes, tied_to
        self.use_bias, self.ignore_index = use_bias, ignore_index
        self.label_smoothing, self.logits_mb = label_smoothing, logits_mb
        # TensorFlow's products are faster on CPUs than XLA's.
        self.supports_jit, self.supports_masking = False, True

    def build(self, hidden_shape, labels_shape=None, sample_weight_shape=None):
        """Creates the weights for hidden states `[..., features]`."""
        if self.tied_to is None:
            shape = self.num_classes, hidden_shape[-1]
            self.own_weight = self.add_weight(shape=shape, name="weight")
        if self.use_bias:
            shape = (self.num_classes or self.tied_to.input_dim,)
            self.bias = self.add_weight(shape, initializer="zeros", name="bias")

    @property
    def weight(self) -> Any:
        """The weights `[classes, features]`."""
        return self.own_weight if self.tied_to is None else self.tied_to.embeddings

    def call(self, hidden, labels=None, sample_weight=None, mask=None):
        """Returns the mean loss, or the logits `[..., classes]` without labels.

        Args:
            hidden: `[..., features]`.
            labels: integers `[...]`.
            sample_weight: `[...]` factors of the losses.
            mask: bool `[...]`, Keras's mask of `hidden`.
        """
        bias = self.bias if self.use_bias else None
        if labels is None:
            weight = tf.cast(self.weight, hidden.dtype)
            logits = tf.matmul(hidden, weight, transpose_b=True)
            return logits if bias is None else logits + tf.cast(bias, logits.dtype)
        labels = tf.convert_to_tensor(labels)
        if isinstance(mask, (list, tuple)):
            mask = mask[0]
        if mask is not None and labels.dtype.is_integer:
            labels = tf.where(mask, tf.cast(labels, tf.int64), self.ignore_index)
        options = {name: getattr(self, name) for name in _OF_LOSS}
        options["sample_weight"] = sample_weight
        loss = linear_cross_entropy(hidden, self.weight, labels, bias, **options)
        self.add_loss(loss)
        return loss

    def compute_mask(self, *_, **__):
        """Returns None: neither a loss nor logits have a mask."""

    def get_config(self):
        """Returns the arguments; an embedding is shared by the loaded model."""
        names = ("num_classes", "use_bias", *_OF_LOSS)
        config = {name: getattr(self, name) for name in names}
        tied_to = self.tied_to and keras.saving.serialize_keras_object(self.tied_to)
        return super().get_config() | config | {"tied_to": tied_to}

    @classmethod
    def from_config(cls, config):
        """Creates the layer from the result of `get_config`."""
        tied_to = config["tied_to"]
        tied_to = tied_to and keras.saving.deserialize_keras_object(tied_to)
        return cls(**config | {"tied_to": tied_to})
