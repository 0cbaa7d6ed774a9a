"""Five-point alignment: known similarities are undone, points land where they shall."""

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.data import alignment


def test_points_that_do_not_fit_are_met_in_the_least_squares():
    rng = np.random.default_rng(0)
    points = 2 * alignment.REFERENCE + rng.normal(scale=4, size=(5, 2))
    (found,) = alignment.transforms(points[None], (112, 112))
    # As a linear system in (a, b, c, d): x' = a x - b y + c, y' = b x + a y + d.
    x, y = points.T
    ones, zeros = np.ones(5), np.zeros(5)
    system = np.hstack([[x, -y, ones, zeros], [y, x, zeros, ones]]).T
    a, b, c, d = np.linalg.lstsq(system, alignment.REFERENCE.T.ravel(), rcond=None)[0]
    placed = alignment.REFERENCE @ np.array([[a, -b], [b, a]]).T + [c, d]
    a, b, c, d, e, f, _, _ = found
    back = placed @ np.array([[a, d], [b, e]]) + [c, f]
    np.testing.assert_allclose(back, alignment.REFERENCE, atol=1e-3)


def test_one_photograph_by_its_points():
    photograph = np.zeros((300, 300, 3), np.uint8)
    points = np.round(alignment.REFERENCE * 2 + [20, 60]).astype(int)
    for number, (x, y) in enumerate(points):
        photograph[y - 4 : y + 5, x - 4 : x + 5] = 50 * (number + 1)
    face = plsc_tf.align_face(photograph, points, (56, 56))
    for number, (x, y) in enumerate(np.round(alignment.REFERENCE / 2).astype(int)):
        assert face[y, x].tolist() == [50 * (number + 1)] * 3
    encoded = tf.io.encode_png(photograph).numpy()
    np.testing.assert_array_equal(plsc_tf.align_face(encoded, points, (56, 56)), face)
    with pytest.raises(ValueError, match=r"\[5, 2\].*\(1, 5, 2\)"):
        plsc_tf.align_face(photograph, points[None])
    with pytest.raises(ValueError, match="an encoded JPEG or PNG"):
        plsc_tf.align_face(b"no picture", points)


def test_faces_are_cut_out_as_large_as_those_of_training():
    sizes = [(112, 112), (48, 48), (112, 96), (56, 48), (224, 224)]
    stored = [(112, 112), (112, 112), (112, 96), (112, 96), (224, 224)]
    assert [alignment.stored_size(size) for size in sizes] == stored


def test_faces_at_the_edges_are_those_of_the_whole_photograph():
    small = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    photo = np.array(tf.image.resize(small, (300, 400))).astype(np.uint8)
    for scale, x, y in [(1, -50, -50), (3, 200, 100), (0.1, 390, 5), (2, 380, 280)]:
        points = scale * (alignment.REFERENCE - 56) @ [[0.6, 0.8], [-0.8, 0.6]] + [x, y]
        (face,) = alignment.cut_faces(photo, points[None], (112, 112))
        expected = plsc_tf.align_face(photo, points)
        np.testing.assert_allclose(face.pixels, expected, atol=1)
