"""Which example comes at which position of an epoch, and how often.

Pure functions of (labels, seed, epoch): the same order in every process, on any
number of replicas, from any position on. An epoch always has as many positions as
there are examples.
"""

from __future__ import annotations

import numpy as np

SAMPLINGS = ("uniform", "class_balanced", "per_identity")


def order(
    labels: np.ndarray,
    *,
    seed: int,
    epoch: int,
    sampling: str = "uniform",
    images_per_identity: int = 4,
    batch_size: int | None = None,
) -> np.ndarray:
    """Returns the indices of an epoch in order, int64 [n].

    Args:
        labels: int [n], the label of each example.
        seed: of all orders.
        epoch: number of the epoch, from 0.
        sampling: "uniform" (each example once), "class_balanced" or "per_identity",
            see the functions of this module.
        images_per_identity: for "per_identity".
        batch_size: for "per_identity": images per batch, over all replicas.
    """
    labels = np.asarray(labels)
    if sampling == "uniform":
        return _generator(seed, epoch).permutation(len(labels))
    if sampling == "class_balanced":
        return class_balanced(labels, seed=seed, epoch=epoch)
    if sampling == "per_identity":
        return per_identity(
            labels,
            seed=seed,
            epoch=epoch,
            images_per_identity=images_per_identity,
            batch_size=batch_size,
        )
    raise ValueError(
        f"sampling must be one of {', '.join(SAMPLINGS)}. "
        f"Received: sampling={sampling!r}."
    )


def class_balanced(labels: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
    """Draws every class equally often, give or take one, in random order.

    Images of a small class come again and again, each as often as the others of its
    class, give or take one; of a large class another random part comes in each epoch.

    Args:
        labels: int [n].
        seed: of all orders.
        epoch: number of the epoch, from 0.

    Returns:
        int64 [n].
    """
    random = _generator(seed, epoch)
    grouped, firsts, sizes = _grouped(labels, random)
    total, classes = len(grouped), len(sizes)
    draws = np.full(classes, total // classes, np.int64)
    draws[random.permutation(classes)[: total % classes]] += 1
    places = _within(draws)
    places %= np.repeat(sizes, draws)
    places += np.repeat(firsts, draws)
    return grouped[random.permutation(places)]


def per_identity(
    labels: np.ndarray,
    *,
    seed: int,
    epoch: int,
    images_per_identity: int,
    batch_size: int | None = None,
) -> np.ndarray:
    """Draws N images of a class one after the other, classes in random order.

    A batch of P * N images so holds N images of each of P classes. A class of m images
    gets ceil(m / N) such groups, spread over the epoch; a group that is not full is
    filled with images of the same class once more. What this adds is cut off at the
    end of the epoch, at random groups. With `batch_size`, groups change places until
    no class comes twice in a batch, as far as the classes allow it.

    Args:
        labels: int [n].
        seed: of all orders.
        epoch: number of the epoch, from 0.
        images_per_identity: N.
        batch_size: P * N; None leaves a class that comes twice where it is.

    Returns:
        int64 [n].

    Raises:
        ValueError: `batch_size` is not a multiple of N.
    """
    if images_per_identity < 1:
        raise ValueError(
            "images_per_identity must be positive. Received: images_per_identity="
            f"{images_per_identity}."
        )
    if batch_size is not None and batch_size % images_per_identity:
        raise ValueError(
            "The global batch must be a multiple of images_per_identity. Received: "
            f"batch_size={batch_size}, images_per_identity={images_per_identity}."
        )
    random = _generator(seed, epoch)
    grouped, firsts, sizes = _grouped(labels, random)
    groups = -(-sizes // images_per_identity)
    owner = np.repeat(np.arange(len(sizes)), groups)
    number = _within(groups)
    # Group j of J of a class falls at random into the j-th of J parts of the epoch.
    moments = (number + random.random(len(number), np.float32)) / groups[owner]
    turn = np.argsort(moments)
    if batch_size is not None:
        _separate(turn, owner, batch_size // images_per_identity, random)
    turn = turn[: -(-len(grouped) // images_per_identity)]
    owner, number = owner[turn], number[turn]
    places = number[:, np.newaxis] * images_per_identity
    places = places + np.arange(images_per_identity)
    places %= sizes[owner][:, np.newaxis]
    places += firsts[owner][:, np.newaxis]
    return grouped[places.reshape(-1)[: len(grouped)]]


def _generator(seed, epoch):
    return np.random.default_rng([seed, epoch])


def _within(counts):
    """0, 1, ... counts[0] - 1, 0, 1, ... counts[1] - 1 and so on."""
    firsts = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(firsts, counts)


def _grouped(labels, random):
    """Indices by class, in random order within a class; first place and size of each.

    Classes without examples are left out.
    """
    labels = np.asarray(labels)
    if not labels.size:
        raise ValueError("There is nothing to sample from: there are no labels.")
    indices = random.permutation(len(labels))
    indices = indices[np.argsort(labels[indices], kind="stable")]
    ordered = labels[indices]
    firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return indices, firsts, np.diff(np.append(firsts, len(labels)))


def _separate(turn, owner, per_batch, random):
    """Swaps groups, in place, until each batch's groups have different owners."""
    owners = owner[turn]
    count = len(turn)
    batch = np.arange(count) // per_batch
    by_class = np.lexsort((owners, batch))
    twice = (owners[by_class][1:] == owners[by_class][:-1]) & (
        batch[by_class][1:] == batch[by_class][:-1]
    )
    places = by_class[1:][twice].tolist()
    # Bounded work: classes larger than their share of a batch never find a place.
    tries = min(max(400_000 // max(len(places), 1), 4), 64)
    for place in places:
        first = place - place % per_batch
        mine = owners[first : first + per_batch]
        for other in random.integers(0, count, tries).tolist():
            start = other - other % per_batch
            theirs = owners[start : start + per_batch]
            if owners[other] in mine or owners[place] in theirs:
                continue
            turn[[place, other]] = turn[[other, place]]
            owners[[place, other]] = owners[[other, place]]
            break
