"""Accuracy on images of the classes that were trained (mnist, cifar10, products)."""

import numpy as np

# Images per product of embeddings and class weights.
BLOCK = 1024


def accuracy(model, batches):
    """Share of images whose own class scores highest, without margins.

    Every image counts once, whatever the sizes of the batches.

    Args:
        model: the `Classifier`, with its head's weights.
        batches: what `plsc_tf.load(..., split="test")` returns.

    Returns:
        (accuracy, number of images).
    """
    weights = model.head.weights_as_numpy()
    bias = np.zeros(len(weights), np.float32)
    if model.head.margins.normalized:
        norms = np.linalg.norm(weights, axis=1, keepdims=True)
        weights = weights / np.maximum(norms, 1e-12)
    else:
        bias = model.head.arrays()["bias"].read(0, len(weights))
    correct = count = 0
    for images, labels in batches.epoch(0):
        embeddings = model.embed(images, batch_size=batches.batch_size)
        for start in range(0, len(embeddings), BLOCK):
            scores = embeddings[start : start + BLOCK] @ weights.T + bias
            found = scores.argmax(axis=1)
            correct += int((found == labels[start : start + BLOCK].numpy()).sum())
        count += len(embeddings)
    if not count:
        raise ValueError("The test split holds no image.")
    return correct / count, count
