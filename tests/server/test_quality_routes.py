"""Embeddings come with their quality, in every format and for clients that ask."""

import numpy as np
import pytest
from server_tools import PLSC, ask, b64, export, picture, served

from plsc_tf.data.alignment import REFERENCE
from plsc_tf.serving.client import Client, ServiceError
from plsc_tf.serving.export import Extras
from tests import detectors

PICTURES = tuple(picture(seed) for seed in range(100))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A server with a gallery and a detector, whose model knows the quality."""
    folder = tmp_path_factory.mktemp("rating")
    export(folder / "face", 1, Extras(validation=PICTURES))
    options = {"detect": "tests.detectors:detect", "gallery_dir": str(folder / "all")}
    with served(folder / "face", **options) as found:
        yield f"127.0.0.1:{found['port']}"


def test_the_client_returns_qualities(address, server):
    client = Client(address, batch_images=40)
    rows, qualities = client.encode_with_quality(PICTURES)
    np.testing.assert_allclose(rows, client.encode(PICTURES), atol=1e-5)
    ranks = np.linalg.norm(rows, axis=1).argsort().argsort() / 99
    np.testing.assert_allclose(qualities, ranks, atol=0.01)
    client = Client(f"127.0.0.1:{server['port']}")
    with pytest.raises((ServiceError, ValueError), match="qualities|signatures"):
        client.encode_with_quality(PICTURES[:2])


def test_answers_have_the_quality(address, monkeypatch):
    body = {"base64_string": [b64(one) for one in PICTURES[:2]]}
    _, expected = Client(address).encode_with_quality(PICTURES[:2])
    port = {"port": int(address.rpartition(":")[2])}
    for path, key in ((PLSC, "embedding"), ("/gallery/identify", "candidates")):
        _, answer, _ = ask(port, "POST", path, body)
        assert key in answer["instance"][0]
        found = [one["quality"] for one in answer["instance"]]
        assert found == pytest.approx(expected.tolist(), abs=1e-3)
    monkeypatch.setattr(detectors, "faces", {301: [REFERENCE + 50]})
    ((face,),) = Client(address).encode_faces([picture(0, (301, 260))])
    assert 0 <= face["quality"] <= 1 and face["embedding"].shape == (8,)
