"""Test identities that are classes of the training set."""

import numpy as np
import pytest

from plsc_tf.evaluation import leaks, verification


def simulated(known, strangers=200, classes=3000, size=64, seed=0):
    """Pairs of people with four images, the first of whom are training classes."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(classes, size))
    centers = np.concatenate([rows[:known], rng.normal(size=(strangers, size))])
    people = np.repeat(np.arange(len(centers)), 4)
    embeddings = centers[people] + 1.2 * rng.normal(size=(len(people), size))
    left, right = rng.integers(0, len(people), (2, 3000))
    right[::2] = left[::2] // 4 * 4 + (left[::2] + 1) % 4
    scores = verification.score(embeddings, left, right, people[left] == people[right])
    pieces = np.array_split(7 * rows, 5)  # a softmax head's rows have any length
    sides = np.stack([people[left], people[right]])
    return leaks.find(scores, sides, pieces, ["accuracy"]), scores


def test_training_classes_are_found_and_left_out():
    found, scores = simulated(known=20)
    assert found["identities"] == 220 and 19 <= found["found"] <= 22
    assert found["estimate"] == pytest.approx(20, abs=5)
    assert 0.5 < found["figures"]["accuracy"] < 1
    assert found["figures"]["accuracy"] != verification.summarize(scores).accuracy


def test_strangers_are_found_rarely():
    counts = [simulated(0, 100, seed=seed)[0]["found"] for seed in range(40)]
    # A family-wise rate of 5%: more than six of forty have a probability of 1%.
    assert np.count_nonzero(counts) <= 6


def test_a_few_classes_are_not_enough():
    assert simulated(5, classes=50)[0] == {}
