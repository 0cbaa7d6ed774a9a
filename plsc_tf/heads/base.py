"""What every classification head is to the training step."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.heads import distributed_softmax as softmax
from plsc_tf.heads.margins import ARCFACE, Margins

# Initial weights are drawn in blocks of rows, each from its own seed, so that a
# class starts with the same weights on any number of replicas.
BLOCK_ROWS = 4096


@dataclasses.dataclass
class HeadStep:
    """Outcome of a head's forward and backward pass on one replica.

    Attributes:
        losses: `[batch]` losses of the replica's own examples.
        embedding_gradients: `[batch, emb]` for the replica's own examples.
        weight_gradients: one tensor per weight of the head, in the order of
            `head.arrays()`: complete for sharded weights, the replica's share for
            replicated ones.
        ranks: int32 `[batch]`, how many classes score above the true one; None
            unless asked for.
    """

    losses: tf.Tensor
    embedding_gradients: tf.Tensor
    weight_gradients: list
    ranks: tf.Tensor | None


class Head(tf.Module):
    """A linear classifier over embeddings, with margins or plain softmax.

    Args:
        num_classes: number of classes; labels are 0 … num_classes − 1.
        margins: `plsc_tf.ARCFACE`, `COSFACE`, `SOFTMAX` or `Margins(...)`.
        scale: factor of the cosines (PLSC: scale); unused by plain softmax.
        seed: of the initial weights, N(0, sqrt(2 / (emb + num_classes))) as in
            PLSC.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(self, num_classes, *, margins=ARCFACE, scale=64.0, seed=0):
        super().__init__(name="head")
        if num_classes < 1:
            raise ValueError(
                f"num_classes must be positive. Received: num_classes={num_classes}"
            )
        if not isinstance(margins, Margins):
            raise ValueError(
                "margins must be plsc_tf.ARCFACE, COSFACE, SOFTMAX or Margins(...). "
                f"Received: margins={margins!r}"
            )
        if scale <= 0:
            raise ValueError(f"scale must be positive. Received: scale={scale}")
        self.num_classes = num_classes
        self.margins = margins
        self.scale = scale
        self.seed = seed
        self.embedding_size = None

    def build(self, embedding_size, strategy):
        """Makes the weights for embeddings of this size under this strategy."""
        raise NotImplementedError

    def arrays(self):
        """`{"weight": rows, "bias": rows}`; the bias with plain softmax only."""
        raise NotImplementedError

    def loss_and_gradients(self, embeddings, labels, upstream, with_ranks=False):
        """Forward and backward pass, called in replica context.

        Args:
            embeddings: `[batch, emb]` of the replica's own examples.
            labels: int64 `[batch]`.
            upstream: `[batch]` derivative of the objective by each loss, which is
                the example's weight / the sum of weights of the global batch.
            with_ranks: also rank the true class (top-1 / top-5 accuracy).

        Returns:
            a `HeadStep`.
        """
        raise NotImplementedError

    def weights_as_numpy(self):
        """The class weights `[num_classes, embedding_size]` float32, all of them."""
        weight = self.arrays()["weight"]
        whole = np.empty(weight.shape, np.float32)
        for low in range(0, self.num_classes, BLOCK_ROWS):
            high = min(low + BLOCK_ROWS, self.num_classes)
            whole[low:high] = weight.read(low, high)
        return whole

    def set_weights_from_numpy(self, array):
        """Sets the class weights from `[num_classes, embedding_size]`.

        Raises:
            ValueError: the shape is another one; nothing is changed then.
        """
        weight = self.arrays()["weight"]
        if tuple(array.shape) != tuple(weight.shape):
            raise ValueError(
                f"The head holds [num_classes, embedding_size] = {weight.shape}. "
                f"Received: array of shape {tuple(array.shape)}"
            )
        for low in range(0, self.num_classes, BLOCK_ROWS):
            weight.write(low, np.asarray(array[low : low + BLOCK_ROWS]))

    def _initial_weight(self, low, high):
        """Rows `[low, high)` of the initial weights."""
        deviation = np.sqrt(2.0 / (self.embedding_size + self.num_classes))
        rows = np.empty((high - low, self.embedding_size), keras.config.floatx())
        for block in range(low // BLOCK_ROWS, -(-high // BLOCK_ROWS)):
            first = block * BLOCK_ROWS
            generator = np.random.default_rng([self.seed, block])
            drawn = generator.standard_normal(
                (BLOCK_ROWS, self.embedding_size), np.float32
            )
            start, stop = max(low, first), min(high, first + BLOCK_ROWS)
            rows[start - low : stop - low] = (
                deviation * drawn[start - first : stop - first]
            )
        return rows

    def _initial_bias(self, low, high):
        """Rows `[low, high)` of the initial biases: zeros, as in PLSC."""
        return np.zeros(high - low, keras.config.floatx())

    def _check_built(self):
        if self.embedding_size is None:
            raise ValueError(
                "The head has no weights yet: give it to plsc_tf.Classifier, or call "
                "head.build(embedding_size, strategy)."
            )

    def _enter(self, embeddings):
        """Prepares embeddings: (input of the logits, function for the way back)."""
        if not self.margins.normalized:
            return embeddings, lambda gradient: gradient
        unit, inverse = softmax.normalize(embeddings)
        return unit, lambda gradient: softmax.normalize_gradient(
            unit, inverse, gradient
        )
