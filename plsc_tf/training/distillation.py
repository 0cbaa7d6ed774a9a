"""Distillation: a loss that makes a network imitate a frozen, usually larger one.

With s the network's embedding of an image, t the teacher's, and x̂ = x / ‖x‖:

* `embedding`: 1 − cos(W s, t). If the lengths of s and t differ, W is a matrix that is
  trained but is not part of the model; otherwise, it is the identity.
* `relational`: the mean over all pairs i ≠ j of the global batch of
  h(‖ŝᵢ − ŝⱼ‖ / μₛ − ‖t̂ᵢ − t̂ⱼ‖ / μₜ), where μ is the mean distance of these pairs, and h
  is Huber's loss: x² / 2 up to |x| = 1, and |x| − 1/2 beyond (Park et al. 2019,
  arXiv:1904.05068, equations 4 to 6).
* `logits`: τ² KL(teacher ‖ network) of the class probabilities softmax(logits / τ)
  (Hinton et al. 2015, arXiv:1503.02531), see `plsc_tf.heads.divergence`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from plsc_tf.data.images import resize
from plsc_tf.heads.base import Head
from plsc_tf.heads.divergence import Divergence
from plsc_tf.heads.kernels import TINY, normalize
from plsc_tf.parallel import collectives
from plsc_tf.requirements import require, require_one_of
from plsc_tf.training.circular import Classifier


class Teacher(NamedTuple):
    """A frozen network.

    Attributes:
        embed: function from float32 images `[b, h, w, channels]` in 0 … 255 to
            embeddings `[b, size]`; replicas call it in the graph of a step.
        image_shape: (height, width, channels) of the images that it takes.
        size: length of its embeddings.
        head: for "logits", its `Head`, with the shards and tiles of the trained one.
    """

    embed: Callable
    image_shape: tuple[int, int, int]
    size: int
    head: Head | None = None


@dataclasses.dataclass(eq=False, repr=False)
class Distillation:
    """The loss between a network and its teacher; pass it to `Classifier.compile`.

    Args:
        teacher: the `Teacher`.
        kind: "embedding", "relational" or "logits".
        weight: factor of the loss.
        temperature: τ.

    Attributes:
        branch: W as a model, or None.
    """

    teacher: Teacher
    kind: str
    weight: float = 50.0
    temperature: float = 4.0
    branch: keras.Model | None = None

    def build(self, model: Classifier) -> None:
        """Checks that the teacher fits a model, and creates W in its strategy's scope.

        Raises:
            ValueError: it does not fit, or the kind is unknown.
        """
        require_one_of(("embedding", "relational", "logits"), distill=self.kind)
        shape, channels = self.teacher.image_shape, model.backbone.input_shape[3]
        rule = f"The teacher must take images of {channels} channels"
        require(shape[2] == channels, rule, image_shape=shape)
        if self.kind == "logits":
            theirs: Any = self.teacher.head
            rule = "distill=logits needs a checkpoint with class weights as teacher"
            require(theirs is not None, rule)
            self.divergence = Divergence(model.head, theirs, self.temperature)
        own, size = model.embedding_size, self.teacher.size
        if self.kind == "embedding" and own != size and self.branch is None:
            initial = keras.initializers.GlorotUniform(seed=0)
            options = {"dtype": keras.config.floatx(), "kernel_initializer": initial}
            with model.strategy.scope():
                matrix = keras.layers.Dense(size, use_bias=False, **options)
                self.branch = keras.Sequential([keras.Input([own]), matrix])

    def target(self, images: tf.Tensor) -> tf.Tensor:
        """Returns the teacher's embeddings of a replica's images, of any size."""
        images = tf.cast(resize(images, self.teacher.image_shape[:2]), tf.float32)
        return tf.cast(self.teacher.embed(images), keras.config.floatx())

    def loss(
        self, embeddings: tf.Tensor, target: tf.Tensor, sample_weights: tf.Tensor
    ) -> tf.Tensor:
        """Returns the replica's share of the weighted loss; call it in replica context.

        Args:
            embeddings: `[b, emb]` of the network.
            target: `[b, size]` of the teacher.
            sample_weights: `[b]`, see `plsc_tf.heads.base.Head.loss_and_gradients`.
        """
        if self.kind == "relational":
            return self.weight * _relational(embeddings, target, sample_weights)
        if self.kind == "logits":
            losses = self.temperature**2 * self.divergence(embeddings, target)
        else:
            own = embeddings if self.branch is None else self.branch(embeddings)
            losses = 1 - tf.reduce_sum(normalize(own)[0] * normalize(target)[0], axis=1)
        return self.weight * tf.reduce_sum(sample_weights * losses)


def _relational(embeddings, target, sample_weights):
    """Returns a share of the global batch's loss that has all of its gradient."""
    gathered = [tf.stop_gradient(embeddings), target, sample_weights]
    rows, target, weights = collectives.all_gather(gathered)
    first = collectives.replica_id() * embeddings.shape[0]
    last = first + embeddings.shape[0]
    rows = tf.concat([rows[:first], embeddings, rows[last:]], axis=0)
    pairs = tf.linalg.set_diag(weights[:, None] * weights, tf.zeros_like(weights))
    pairs = tf.math.divide_no_nan(pairs, tf.reduce_sum(pairs))
    error = tf.abs(_distances(rows, pairs) - _distances(target, pairs))
    small = tf.minimum(error, 1.0)
    # The sum of the weights is the share of this part of the batch in the objective.
    whole = tf.reduce_sum(pairs * small * (error - small / 2)) * tf.reduce_sum(weights)
    return whole - tf.stop_gradient(whole) * (1 - 1 / collectives.num_replicas())


def _distances(rows, pairs):
    """Returns the distances `[n, n]` of normalized rows, divided by their mean."""
    unit, _ = normalize(rows)
    squares = 2 - 2 * tf.matmul(unit, unit, transpose_b=True)
    distances = tf.sqrt(tf.maximum(squares, TINY))  # at 0, a root has no gradient
    return tf.math.divide_no_nan(distances, tf.reduce_sum(pairs * distances))
