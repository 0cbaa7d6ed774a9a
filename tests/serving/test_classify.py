"""The signature `classify`: probabilities of the head, without its margin."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import plsc_tf
from plsc_tf.data.images import encode
from plsc_tf.serving.export import export_saved_model
from plsc_tf.serving.signatures import ClosedSet
from tests.marks import slow
from tests.networks import scores
from tests.serving.tiny import SIZE, classifier, images, network, read

IMAGES = images(5)


def probabilities(model):
    """By the definition, in float64: all classes of `IMAGES`."""
    logits = scores(model, IMAGES)
    if model.head.loss.normalized:
        logits *= model.head.scale
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def check(outputs, expected):
    best = np.argsort(-expected, axis=1)[:, :3]
    assert (outputs["classes"].dtype, outputs["scores"].dtype) == (tf.int64, tf.float32)
    np.testing.assert_array_equal(outputs["classes"], best)
    shares = np.take_along_axis(expected, best, axis=1)
    np.testing.assert_allclose(outputs["scores"], shares, atol=1e-5)
    assert expected.max() < 0.99, "the case must not be trivial"


@pytest.mark.parametrize(
    ("margins", "sharded", "centers"),
    [
        (plsc_tf.ARCFACE, True, 3),
        (plsc_tf.SOFTMAX, False, 1),
        slow(plsc_tf.ARCFACE, True, 1),
        slow(plsc_tf.ARCFACE, False, 1),
        slow(plsc_tf.SOFTMAX, True, 1),
    ],
)
def test_scores_are_the_heads_probabilities(margins, sharded, centers):
    model = classifier(margins, sharded, scale=4.0, sub_centers=centers)
    check(ClosedSet(model.head, 3)(model.embed(IMAGES)), probabilities(model))


def test_the_signature_is_one_of_tensorflow_servings_predict_api(tmp_path):
    model = classifier(plsc_tf.ARCFACE, scale=4.0)
    # The length 1 of the exported embeddings must not reach the classes.
    options = {"image_size": SIZE, "classes": 3, "normalize": True}
    folder = export_saved_model(model, tmp_path, **options)
    signature = tf.saved_model.load(folder).signatures["classify"]
    outputs = signature(bytes=tf.constant([encode(one) for one in IMAGES]))
    check(outputs, probabilities(model))
    row = read(folder, "proof.json")["artefacts"][-1]
    assert (row["artefact"], row["same_classes"]) == ("classify", 1.0)
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString(pathlib.Path(folder, "saved_model.pb").read_bytes())
    (meta,) = saved.meta_graphs
    assert list(meta.meta_info_def.tags) == ["serve"]
    one = meta.signature_def["classify"]
    assert one.method_name == "tensorflow/serving/predict"
    assert set(one.inputs) == {"bytes"}
    assert set(one.outputs) == {"classes", "scores"}
    assert [d.size for d in one.outputs["scores"].tensor_shape.dim] == [-1, 3]


def test_more_classes_than_there_are(tmp_path):
    with pytest.raises(ValueError, match="num_classes=11. Received: classes=12"):
        model = classifier(plsc_tf.ARCFACE)
        export_saved_model(model, tmp_path, image_size=SIZE, classes=12)
    with pytest.raises(ValueError, match="a plsc_tf.Classifier"):
        export_saved_model(network(), tmp_path, classes=2)
    assert not list(tmp_path.iterdir())
