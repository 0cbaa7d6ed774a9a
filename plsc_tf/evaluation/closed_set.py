"""Accuracy on test images of the trained classes (mnist, cifar10, products)."""

import functools

import numpy as np

from plsc_tf.evaluation import embedding_store, verification
from plsc_tf.requirements import require

# Images and classes per matrix product (64 MB of scores).
_IMAGES, _CLASSES = 1024, 16384


def ranks(model, batches):
    """Ranks each image's true class among all classes, without margins.

    Every image counts once, regardless of the batch sizes. All embeddings are in
    memory, but only one block of class weights and its scores at a time.

    Args:
        model: the `Classifier`, including its head's weights.
        batches: the result of `plsc_tf.load(..., split="test")`.

    Returns:
        (ranks, labels): int64 `[images]`, 1 + the number of other classes that score
        at least as high as the true class; int64 `[images]`.

    Raises:
        ValueError: there are no images, a label is not one of the head's classes, or an
            embedding contains NaN or infinity.
        FloatingPointError: a class weight contains NaN or infinity.
    """
    embeddings, labels = [], []
    for images, batch in batches.epoch(0):
        embeddings.append(model.embed(images, batch_size=batches.batch_size))
        labels.append(np.asarray(batch, np.int64))
    require(labels, "The test split contains no images")
    embeddings, own = np.concatenate(embeddings), np.concatenate(labels)
    head = model.head
    embedding_store.check_labels(own, head.num_classes)
    verification.lengths(embeddings)  # raises ValueError for NaN and infinity
    scores = np.empty(len(own), np.float32)
    counts = np.ones(len(own), np.int64)
    # The first pass collects the true classes' scores; the second counts the other
    # classes that score at least as high.
    for count in (False, True):
        for low, weights, bias in class_blocks(head):
            for start in range(0, len(own), _IMAGES):
                rows = slice(start, start + _IMAGES)
                product = _scores(embeddings[rows], weights) + bias
                inside = own[rows] - low
                mine = np.flatnonzero((inside >= 0) & (inside < len(weights)))
                if not count:
                    scores[start + mine] = product[mine, inside[mine]]
                    continue
                product[mine, inside[mine]] = -np.inf
                # Forged weights can have NaN as scores, which is not lower either.
                as_high = ~(product < scores[rows, np.newaxis])
                counts[rows] += np.count_nonzero(as_high, axis=1)
    return counts, own


def _scores(embeddings, weights):
    """Returns scores `[images, classes]`; with several centers, the best one's."""
    centers = weights.reshape(len(weights), -1, weights.shape[-1]).transpose(1, 2, 0)
    return functools.reduce(np.maximum, (embeddings @ center for center in centers))


def class_blocks(head):
    """Yields (first class, weights, bias) for consecutive blocks of classes.

    Weights are float32 `[n, emb]` or `[n, sub_centers, emb]`, of length 1 if the head's
    loss normalizes them; its bias `[n]` is then 0.

    Raises:
        FloatingPointError: a class weight contains NaN or infinity.
    """
    weight = head.arrays()["weight"]
    for low in range(0, head.num_classes, _CLASSES):
        high = min(low + _CLASSES, head.num_classes)
        weights = np.asarray(weight.read(low, high), np.float32)
        bias = np.zeros(high - low, np.float32)
        if head.loss.normalized:
            weights = embedding_store.unit(weights)
        else:
            bias = np.asarray(head.arrays()["bias"].read(low, high))
        finite = np.isfinite(weights).reshape(len(weights), -1).all(axis=1)
        finite &= np.isfinite(bias)
        rule = f"The weights of class {low + finite.argmin()} contain NaN or infinity"
        advice = "Use an earlier checkpoint"
        require(finite.all(), rule, advice, raises=FloatingPointError)
        yield low, weights, bias
