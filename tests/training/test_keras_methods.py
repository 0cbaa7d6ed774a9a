"""What Keras users call: weights and validation in `fit`, `evaluate`, `predict`."""

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from tests.training.conftest import build


@pytest.fixture(scope="module")
def softmax():
    """A model that computes plain softmax."""
    return build(loss=plsc_tf.SOFTMAX, metrics=["accuracy"])


@pytest.mark.parametrize("given", [None, "lines"])
def test_the_summary_shows_the_head(softmax, capsys, given):
    lines = []
    softmax.summary(print_fn=lines.append if given else None)
    text = "\n".join(lines) if given else capsys.readouterr().out
    assert "conv2d" in text or "sequential" in text
    # Five rows of eight numbers and a bias.
    assert (
        "Head: ShardedHead, 5 rows × 8, in 2 shard(s), in tiles of 3; "
        "45 parameters; loss=Margins(m1=1.0, m2=0.0, m3=0.0, normalized=False"
    ) in text


def test_predict_is_embed(softmax, pictures):
    expected = softmax.embed(pictures[0])
    data = tf.data.Dataset.from_tensor_slices(pictures).batch(6)
    np.testing.assert_allclose(softmax.predict(pictures[0]), expected, atol=1e-6)
    np.testing.assert_allclose(softmax.predict(data), expected, atol=1e-6)
    found = softmax.predict_on_batch(pictures[0])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_weights_of_examples_and_classes_multiply(make_model, pictures):
    images, labels = pictures
    by_class = {0: 0.0, 3: 2.5}
    own = np.linspace(0.5, 1.5, len(labels)).astype(np.float32)
    both = own * [by_class.get(int(label), 1.0) for label in labels]
    model, other = make_model(), make_model()
    found = model.train_on_batch(images, labels, own, by_class)["loss"]
    expected = other.train_on_batch(images, labels, both)["loss"]
    assert found == pytest.approx(expected, rel=1e-5)
    rows = [one.head.weights_as_numpy() for one in (model, other)]
    np.testing.assert_allclose(*rows, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"sample_weight": [1.0]}, "the same length.* weights=1"),
        ({"class_weight": {1: -1.0}}, "none negative"),
        ({"class_weight": [1, 1, 1, 1, 2]}, r"\{label: weight\}"),
        ({"validation_data": (1, 2, 3, 4)}, "validation_data .*length=4"),
        ({"validation_split": 0.1}, "validation_split.*validation_data"),
        ({"epoch": 2}, "no argument 'epoch'.*docstring"),
    ],
)
def test_what_does_not_fit_is_refused(softmax, pictures, given, complaint):
    with pytest.raises((ValueError, TypeError), match=complaint):
        softmax.fit(*pictures, verbose=0, **given)


def test_what_keras_has_and_the_model_has_not_is_told(softmax, pictures):
    images, labels = pictures
    with pytest.raises(ValueError, match="leave out y and sample_weight"):
        softmax.fit(tf.data.Dataset.from_tensor_slices(pictures).batch(6), labels)
    with pytest.raises(ValueError, match="from_generator"):
        softmax.fit(iter([pictures]))
    column = softmax.evaluate(images, labels[:, None])
    assert column == pytest.approx(softmax.evaluate(images, labels))


@pytest.mark.parametrize("verbose", ["auto", 1, 2, 0])
def test_verbose_shows_steps_as_keras_does(softmax, pictures, capsys, verbose):
    data = tf.data.Dataset.from_tensor_slices(pictures).batch(5)
    for call in (
        lambda: softmax.evaluate(*pictures, batch_size=10, verbose=verbose),
        lambda: softmax.evaluate(data, verbose=verbose),
        lambda: softmax.predict(pictures[0], batch_size=10, verbose=verbose),
        lambda: softmax.predict(data, verbose=verbose),
    ):
        call()
        shown = capsys.readouterr().out
        assert ("2/2" in shown or "4/4" in shown) == (verbose != 0)
        assert verbose != 0 or not shown
