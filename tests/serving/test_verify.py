"""The signatures that compare pairs of images and of embeddings."""

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data.images import encode
from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.serving.export import Extras, export_saved_model
from tests.serving import tiny

CURVE = {"cosines": [-0.5, 0.2, 0.2001, 0.99], "llrs": [-3.0, -1.0, 0.5, 6.0]}


def test_pairs_are_compared_as_the_card_says(tmp_path):
    groups = {"few": {"note": ""}, "old": {**CURVE, "llrs": [-4, -2, 0, 3]}}
    known = {"method": "isotonic", "prior": 0.2, "groups": groups, **CURVE}
    sets = {"lfw": {"threshold": {**tiny.LARGE, "calibration": known}}}
    card = EvaluationCard("card.json", {**tiny.CARD, "sets": sets}, None)
    network = tiny.network()
    folder = export_saved_model(network, tmp_path, extras=Extras(card=card))
    signatures = tf.saved_model.load(folder).signatures
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 2, tiny.EMBEDDING)).astype(np.float32)
    rows[:, 1] += rng.uniform(0, 9, (50, 1)) * rows[:, 0]
    outputs = signatures["verify_embeddings"](embeddings=tf.constant(rows))
    cosines = tiny.cosines(*rows.astype(np.float64).swapaxes(0, 1))
    llrs = np.interp(cosines, CURVE["cosines"], CURVE["llrs"])
    expected = {"score": cosines, "llr": llrs, "decision": cosines > 0.4}
    own = np.interp(cosines, CURVE["cosines"], groups["old"]["llrs"])
    expected["group_llrs"] = own[:, np.newaxis]
    expected["probability"] = 1 / (1 + 4 * np.exp(-llrs))
    assert set(outputs) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values, rtol=0, atol=1e-9)
    pairs = tf.constant([list(map(encode, tiny.IMAGES[k : k + 2])) for k in (0, 2)])
    embeddings = network(tiny.IMAGES[:4].astype(np.float32)).numpy()
    found, expected = signatures["verify"](bytes=pairs), embeddings[::2]
    expected = tiny.cosines(expected, embeddings[1::2])
    np.testing.assert_allclose(found["score"], expected, atol=1e-5)
    for bad in (0, np.nan, np.inf):
        rows[3, 1] = bad
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
            signatures["verify_embeddings"](embeddings=tf.constant(rows))
