"""The signature `classify`: probabilities of the head, without its margin."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.serving.export import Extras, export_saved_model
from tests.serving.tiny import SIZE, classifier, network, pictures, png

PICTURES = pictures(5)


def probabilities(model):
    """By the definition, in float64: all classes of `PICTURES`."""
    embeddings = model.embed(PICTURES).astype(np.float64)
    weights = model.head.weights_as_numpy().astype(np.float64)
    if model.head.margins.normalized:
        embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
        weights /= np.linalg.norm(weights, axis=-1, keepdims=True)
        cosines = np.tensordot(embeddings, weights, [[1], [-1]])
        logits = model.head.scale * cosines
        logits = logits.max(axis=2) if logits.ndim == 3 else logits
    else:
        bias = model.head.arrays()["bias"].read(0, model.head.num_classes)
        logits = embeddings @ weights.T + bias
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("margins", "sharded", "centers"),
    [
        (plsc_tf.ARCFACE, True, 1),
        (plsc_tf.ARCFACE, False, 1),
        (plsc_tf.ARCFACE, True, 3),
        (plsc_tf.SOFTMAX, True, 1),
        (plsc_tf.SOFTMAX, False, 1),
    ],
)
def test_scores_are_the_heads_probabilities(tmp_path, margins, sharded, centers):
    model = classifier(margins, sharded, scale=4.0, sub_centers=centers)
    # The length 1 of the exported embeddings must not reach the classes.
    folder = export_saved_model(
        model,
        tmp_path,
        image_size=SIZE,
        classes=3,
        normalize=True,
        extras=Extras(class_names=tuple("abcdefghijk")),
    )
    signature = tf.saved_model.load(folder).signatures["classify"]
    found = signature(bytes=tf.constant([png(one) for one in PICTURES]))
    expected = probabilities(model)
    best = np.argsort(-expected, axis=1)[:, :3]
    assert (found["classes"].dtype, found["scores"].dtype) == (tf.int64, tf.float32)
    np.testing.assert_array_equal(found["classes"], best)
    np.testing.assert_allclose(
        found["scores"], np.take_along_axis(expected, best, axis=1), atol=1e-5
    )
    assert expected.max() < 0.99, "the case must not be trivial"
    extra = pathlib.Path(folder, "assets.extra")
    assert (extra / "classes.txt").read_text().split() == list("abcdefghijk")
    rows = json.loads((extra / "proof.json").read_text())["artefacts"]
    assert rows[-1]["artefact"] == "classify"
    assert rows[-1]["same_classes"] == 1.0


def test_the_signature_is_one_of_tensorflow_servings_predict_api(tmp_path):
    folder = export_saved_model(
        classifier(plsc_tf.ARCFACE), tmp_path, image_size=SIZE, classes=2
    )
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString(pathlib.Path(folder, "saved_model.pb").read_bytes())
    (meta,) = saved.meta_graphs
    assert list(meta.meta_info_def.tags) == ["serve"]
    one = meta.signature_def["classify"]
    assert one.method_name == "tensorflow/serving/predict"
    assert set(one.inputs) == {"bytes"}
    assert set(one.outputs) == {"classes", "scores"}
    assert [d.size for d in one.outputs["scores"].tensor_shape.dim] == [-1, 2]


def test_more_classes_than_there_are(tmp_path):
    with pytest.raises(ValueError, match="head's 11. Received: classes=12"):
        export_saved_model(
            classifier(plsc_tf.ARCFACE), tmp_path, image_size=SIZE, classes=12
        )
    with pytest.raises(ValueError, match="a plsc_tf.Classifier"):
        export_saved_model(network(), tmp_path, classes=2)
    assert not list(tmp_path.iterdir())
