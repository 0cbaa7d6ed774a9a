"""One export with everything in it, for all tests of its parts."""

import json

import numpy as np
import pytest

from plsc_tf.data.images import encode
from plsc_tf.parallel.strategy import strategy
from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.serving.export import Extras, export_saved_model
from tests.serving import tiny


def _accuracy(embed):
    """Stands for verification: how well an embedding recognizes its own image."""
    rows = embed(tiny.IMAGES)
    return {"set": float(np.mean(tiny.cosines(rows, rows) > 0.5))}


@pytest.fixture(scope="session")
def exported(tmp_path_factory, logical_devices):
    """(network, version folder): normalized, every format, with a card.

    Network and export are made on two replicas, inside the scope of their strategy.
    """
    folder = tmp_path_factory.mktemp("serving")
    (folder / "card.json").write_text(json.dumps(tiny.CARD))
    (folder / "card.html").write_text("<p>page")
    extras = Extras(
        formats=tuple(tiny.FORMATS),
        calibration=tiny.images(20, seed=5),
        pictures=tuple(map(encode, tiny.IMAGES)),
        accuracy=_accuracy,
        card=EvaluationCard.read(str(folder / "card.json")),
    )
    with strategy(num_replicas=2).scope():
        network, options = tiny.network(), {"normalize": True, "extras": extras}
        return network, export_saved_model(network, folder / "face", **options)
