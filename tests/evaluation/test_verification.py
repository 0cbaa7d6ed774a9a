"""The ten-fold protocol: insightface's figures, and cases by hand."""

import dataclasses

import numpy as np
import pytest

from plsc_tf.data.pairs import Pairs
from plsc_tf.evaluation.verification import verify, verify_pairs
from plsc_tf.jobs import results


def clean_pairs(rng, num_pairs, size, block):
    """Embeddings of consecutive pairs, blocks of pairs alike and others not."""
    same = np.arange(num_pairs) // block % 2 == 0
    first = rng.normal(size=(num_pairs, size))
    second = np.where(same[:, None], first, rng.normal(size=first.shape))
    left = np.arange(0, 2 * num_pairs, 2)
    return np.stack([first, second], 1).reshape(-1, size), left, left + 1, same


def random_pairs(num_pairs, noise=1.0):
    rng = np.random.default_rng(0)
    clean, *pairs = clean_pairs(rng, num_pairs, 16, block=7)
    embeddings = clean + noise * rng.normal(size=clean.shape)
    return embeddings.astype(np.float32) * 3, *pairs


def test_threshold_is_the_smallest_of_the_best_over_all_pairs():
    # Squared distances: 0.205 for the same, 2 for the others.
    cosine = 0.8975
    embeddings = np.array([[1, 0], [cosine, np.sqrt(1 - cosine**2)], [0, 1.0]])
    left, right = np.zeros(20, int), np.array([1, 2] * 10)
    result = verify(embeddings, left, right, right == 1)
    assert (result.accuracy, result.std) == (1.0, 0.0)
    assert result.threshold == pytest.approx(0.21)
    assert result.val_at_far == 1.0
    assert result.num_pairs == 20


def test_folds_of_one_kind_are_left_out_of_its_rate():
    embeddings, left, right, same = random_pairs(140, noise=0.1)
    order = np.argsort(~same, kind="stable")  # all same pairs first
    result = verify(embeddings, left[order], right[order], same[order])
    assert result.val_at_far == 1.0
    assert result.accuracy == 1.0


def test_a_zero_embedding_is_a_distance_like_any_other():
    embeddings, left, right, same = random_pairs(40)
    embeddings[3] = 0.0
    assert np.isfinite(verify(embeddings, left, right, same).accuracy)


def test_text_is_plscs_line():
    result = verify(*random_pairs(140))
    assert str(result) == f"Accuracy-Flip: {result.accuracy:.5f}+-{result.std:.5f}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"left": [0, 1]}, r"equally long.*Received: shapes=\(\(2,\), \(40,\)"),
        ({"left": np.full(40, -1)}, "numbers of rows, which begin at 0"),
        ({"same": np.ones(40, bool)}, r"different pairs.*all_with_same=True"),
        ({"folds": 41}, r"number of pairs, 40. Received: folds=41"),
        (
            {"embeddings": np.full((80, 2), np.nan)},
            r"finite.*80 of 80 rows.*first_row=.0.",
        ),
    ],
)
def test_wrong_arguments_are_named(change, message):
    names = ("embeddings", "left", "right", "same")
    with pytest.raises(ValueError, match=message):
        verify(**{**dict(zip(names, random_pairs(40), strict=True)), **change})


@pytest.mark.parametrize(
    ("seed", "num_pairs", "noise", "size", "expected"),
    [
        (2, 1200, 2.5, 128, "0.90000 0.02582 91.195925 0.30833 0.04729 0.00167"),
        (4, 603, 1.2, 8, "0.82418 0.02905 12.870580 0.08226 0.03918 0.00333"),
        (0, 6000, 1.5, 64, "0.98033 0.00287 43.076549 0.87967 0.01980 0.00167"),
    ],
)
def test_figures_are_insightfaces(seed, num_pairs, noise, size, expected):
    """What its eval/verification.py printed for the same embeddings, mirror images too.

    Run beside scikit-learn 1.2.2, with the linear spline of SciPy as it was when equal
    points were allowed.
    """
    rng = np.random.default_rng(seed)
    clean, *pairs = clean_pairs(rng, num_pairs, size, num_pairs // 20)
    plain, mirrored = (
        (3 * (clean + noise * rng.normal(size=clean.shape))).astype(np.float32)
        for _ in range(2)
    )
    result = verify(plain.astype(np.float64) + mirrored, *pairs)
    norms = np.linalg.norm(np.concatenate([plain, mirrored]).astype(float), axis=1)
    figures = (result.accuracy, result.std, norms.mean(), result.val_at_far)
    shown = "{:.5f} {:.5f} {:.6f} {:.5f}".format(*figures)
    assert f"{shown} {result.val_std:.5f} {result.far:.5f}" == expected


def make_pairs(num_images=24, num_pairs=40, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (num_images, 4, 5, 3), np.uint8)
    left, right = rng.integers(0, num_images - 1, (2, num_pairs))
    return Pairs("random", images, left, right, np.arange(num_pairs) % 2 == 0)


class Network:
    """A linear embedding that remembers what it was shown."""

    def __init__(self):
        self.weights = np.random.default_rng(1).normal(size=(60, 8))
        self.seen = []

    def __call__(self, images):
        self.seen.append(images)
        return (images.reshape(len(images), -1) @ self.weights).astype(np.float32)


def test_verify_pairs_embeds_each_listed_image_once_and_its_mirror_image():
    pairs, network = make_pairs(), Network()
    result = verify_pairs(network, pairs, batch_size=7)
    shown, mirrored = (np.concatenate(network.seen[i::2]) for i in (0, 1))
    assert max(len(batch) for batch in network.seen) == 7
    assert shown.dtype == np.uint8
    listed = pairs.images[np.unique([pairs.left, pairs.right])]
    np.testing.assert_array_equal(shown, listed)
    np.testing.assert_array_equal(mirrored, listed[:, :, ::-1])

    plain, mirrored = network(pairs.images), network(pairs.images[:, :, ::-1])
    sums = plain.astype(np.float64) + mirrored
    expected = verify(sums, pairs.left, pairs.right, pairs.same)
    assert result.accuracy == expected.accuracy
    assert result.threshold == expected.threshold
    # XNorm is the mean over listings and both passes, not the norm of the sums.
    rows = np.concatenate([pairs.left, pairs.right])
    norms = np.linalg.norm(np.concatenate([plain[rows], mirrored[rows]]), axis=1)
    assert result.xnorm == pytest.approx(norms.mean(), rel=1e-6)


@pytest.fixture
def requested(monkeypatch):
    """(image size, rows) of each call of `Pairs.decoded`."""
    calls, decoded = [], Pairs.decoded

    def note(self, *request):
        calls.append(request)
        return decoded(self, *request)

    monkeypatch.setattr(Pairs, "decoded", note)
    return calls


def test_verify_pairs_without_flip_shows_every_image_once(requested):
    pairs, network = make_pairs(), Network()
    result = verify_pairs(network, pairs, flip=False, image_size=(4, 5))
    assert len(network.seen) == 1 and [size for size, _ in requested] == [(4, 5)]
    # Says the same, for pictures such as characters.
    assert verify_pairs(network, dataclasses.replace(pairs, mirror=False)) == result
    expected = verify(network(pairs.images), pairs.left, pairs.right, pairs.same)
    assert result.accuracy == expected.accuracy
    assert str(result).startswith("Accuracy: ")


def test_images_are_decoded_in_blocks_and_each_once(requested):
    pairs = make_pairs(num_images=2500, num_pairs=1250)
    left = np.arange(0, 2500, 2)
    pairs = dataclasses.replace(pairs, left=left, right=left + 1)
    verify_pairs(Network(), pairs, batch_size=100)
    # Whole batches at a time.
    blocks = [rows for _, rows in requested]
    assert [len(rows) for rows in blocks] == [2000, 500]
    np.testing.assert_array_equal(np.concatenate(blocks), np.arange(2500))


def test_embed_must_return_one_row_per_image():
    with pytest.raises(ValueError, match=r"embedding_size\] for \d+ images.*\(1, 8\)"):
        verify_pairs(lambda images: np.ones((1, 8)), make_pairs())


def test_the_baseline_of_raw_pixels_ignores_brightness_and_contrast():
    images = np.random.default_rng(0).integers(0, 90, (21, 6, 6, 3), np.uint8)
    images[1:11] = images[11:] * 2 + 30
    left = np.arange(1, 11).repeat(2)
    right = left + np.tile([10, 9], 10)
    pairs = Pairs("copies", images, left, right, right == left + 10)
    found = results.raw_pixels({"copies": pairs}, (6, 6))
    assert found == {"copies": {"accuracy": 1.0, "std": 0.0}}
