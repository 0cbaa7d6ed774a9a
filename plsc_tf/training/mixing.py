"""Implements mixup and cutmix: training on mixtures of two images and their labels."""

import dataclasses

import tensorflow as tf

from plsc_tf.data.augmentation.operations import in_box
from plsc_tf.heads.base import Head, HeadStep
from plsc_tf.requirements import require
from plsc_tf.training.circular import Classifier


@dataclasses.dataclass(frozen=True)
class Mixing:
    """Mixes each image of a batch with its neighbor, 0 with 1, 2 with 3, and so on.

    The batch is in random order, so a neighbor is a random partner. Neighbors are
    always on the same replica if every replica has an even number of images. The share
    of the first image is drawn once per step and depends only on seed and step.

    Args:
        mixup: parameter a of Beta(a, a), the distribution of the share in a blend of
            both images (Zhang et al. 2017, arXiv:1710.09412); 0 disables mixup.
        cutmix: parameter of the same distribution for cutmix, which replaces a
            rectangle with the partner's pixels (Yun et al. 2019, arXiv:1905.04899); 0
            disables it. If both are set, each step uses one of them at random.
        seed: random seed for the shares and rectangles.

    Raises:
        ValueError: a parameter is negative.
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    seed: int = 0

    def __post_init__(self):
        rule = "mixup and cutmix must not be negative"
        require(min(self.mixup, self.cutmix) >= 0, rule, **vars(self))

    def check(self, model: Classifier) -> None:
        """Checks that the loss of a `Classifier` is defined for mixed images.

        Raises:
            ValueError: the loss has a margin, or there are auxiliary logits.
        """
        fits = not model.head.loss.normalized and model.auxiliary is None
        rule = "mixup and cutmix need plain softmax without auxiliary logits"
        reason = "A margin is not defined for an image of two classes"
        use = "Use loss_type=softmax or dist_softmax, and aux_logits_weight=0"
        require(fits, rule, f"{reason}. {use}", mixing=self, loss=model.head.loss)

    def __call__(
        self, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Mixes the images of a replica.

        Args:
            images: `[b, h, w, 3]` in 0 … 255.
            labels: int64 `[b]`.
            weights: `[b]`; images with weight 0 (padding) are not mixed into others.
            step: int64 scalar, number of the update.

        Returns:
            (float images `[b, h, w, 3]`, int64 labels `[b, 2]` of the image and its
            partner, scalar share of the first label).

        Raises:
            ValueError: b is odd.
        """
        count = labels.shape[0]
        rule = "mixup and cutmix mix pairs: each replica needs an even number of images"
        require(count % 2 == 0, rule, "Change batch_size", images=count)
        rows = tf.range(count)
        partner = tf.bitwise.bitwise_xor(rows, 1)
        partner = tf.where(tf.gather(weights, partner) > 0, partner, rows)
        images = tf.cast(images, tf.float32)
        others = tf.gather(images, partner)
        labels = tf.stack([labels, tf.gather(labels, partner)], axis=1)
        which, first, second, place = tf.unstack(self._seeds(step))

        def blended():
            share = _beta(self.mixup, first)
            return share * images + (1 - share) * others, share

        def pasted():
            return _paste(images, others, _beta(self.cutmix, second), place)

        if not self.cutmix:
            mixed, share = blended()
        elif not self.mixup:
            mixed, share = pasted()
        else:
            even = tf.random.stateless_uniform([], which) < 0.5
            mixed, share = tf.cond(even, blended, pasted)
        return mixed, labels, share

    def _seeds(self, step):
        """Returns a step's four seeds, `[4, 2]`."""
        # The second number keeps these random numbers independent of the ones of
        # Partial FC and of the pipeline.
        key = tf.constant([self.seed, 0x6D6978], tf.int32)
        key = tf.random.experimental.stateless_fold_in(key, tf.cast(step, tf.int32))
        return tf.random.experimental.stateless_split(key, 4)


def _beta(parameter, seed):
    """Draws a number from Beta(a, a)."""
    one, other = tf.unstack(tf.random.stateless_gamma([2], seed, alpha=parameter))
    total = one + other  # 0 if both are too small for float32
    return tf.where(total > 0, one / tf.where(total > 0, total, 1.0), 0.5)


def _paste(images, others, share, seed):
    """Replaces a rectangle of the images with the others' pixels.

    Returns:
        (images, share of the original pixels).
    """
    sides = tf.constant([float(side) for side in images.shape[1:3]])
    half = tf.sqrt(1 - share) * sides / 2
    center = tf.random.stateless_uniform([2], seed) * sides
    first = tf.clip_by_value(tf.round(center - half), 0, sides)
    last = tf.clip_by_value(tf.round(center + half), 0, sides)
    inside = in_box(tf.stack([first, last]), images[0])
    return tf.where(inside, others, images), 1 - tf.reduce_prod((last - first) / sides)


def of_both_labels(
    head: Head, batch: tuple[tf.Tensor, ...], share: tf.Tensor, of_head: dict
) -> HeadStep:
    """Computes the head's step for the loss of two labels.

    The loss is share · loss(first label) + (1 - share) · loss(second label). Every
    example passes through the head twice, once with each label.
    """
    embeddings, labels, sample_weights = batch
    outcome = head.loss_and_gradients(
        tf.concat([embeddings, embeddings], axis=0),
        tf.concat(tf.unstack(labels, axis=1), axis=0),
        tf.concat([share * sample_weights, (1 - share) * sample_weights], axis=0),
        **of_head,
    )
    first, second = tf.split(outcome.losses, 2)
    ranks = outcome.ranks
    return dataclasses.replace(
        outcome,
        losses=share * first + (1 - share) * second,
        embedding_gradients=tf.add_n(tf.split(outcome.embedding_gradients, 2)),
        ranks=None if ranks is None else tf.split(ranks, 2)[0],
    )
