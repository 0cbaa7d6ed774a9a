"""POST /faces and the client: boxes and embeddings of the faces in photographs."""

import concurrent.futures
import io
import struct

import numpy as np
import pytest
from PIL import Image
from server_tools import PLSC, ask, b64, direct, export, picture, served, wait_for

import plsc_tf
from plsc_tf.data.alignment import REFERENCE
from plsc_tf.data.images import encode
from plsc_tf.serving.client import Client, ServiceError
from tests import detectors
from tests.server.test_client import listening

FACES = [REFERENCE + [100, 50], REFERENCE * 2]
# Before this size, the model of these tests resizes faces itself.
CUT = (112, 84)


@pytest.fixture(scope="module")
def finding(model_dir):
    """A server that finds faces."""
    with (
        pytest.MonkeyPatch.context() as patch,
        served(model_dir, detect="tests.detectors:detect") as found,
    ):
        patch.setattr(detectors, "faces", {301: FACES[:1], 302: FACES})
        yield found


def photo(width):
    return picture(width, (width, 260))


def post(server, *photos):
    body = {"base64_string": [b64(one) for one in photos]}
    return ask(server, "POST", "/faces", body)[:2]


def test_boxes_and_embeddings_of_all_faces(finding, model_dir):
    photos = [photo(302), photo(300), photo(301)]
    with Client(f"127.0.0.1:{finding['port']}") as client:
        found = client.encode_faces(photos)
    assert [len(faces) for faces in found] == [2, 0, 1]
    large, small = found[0]
    np.testing.assert_allclose(large["points"], FACES[1], rtol=1e-6)
    np.testing.assert_allclose(small["points"], FACES[0], rtol=1e-6)
    # For a network as wide as high, it would be the square from 0 to 224.
    left, top, right, bottom = large["box"]
    assert (left + right, top + bottom) == pytest.approx((224, 224), abs=10)
    assert (bottom - top) / (right - left) == pytest.approx(CUT[0] / CUT[1])
    assert large["box"].dtype == large["embedding"].dtype == np.float32
    cut = [encode(plsc_tf.align_face(photos[0], face, CUT)) for face in FACES[::-1]]
    for face, embedding in zip(found[0], direct(model_dir / "1", cut), strict=True):
        np.testing.assert_allclose(face["embedding"], embedding, atol=1e-5)


def test_faces_have_the_size_for_a_new_version(tmp_path, monkeypatch):
    monkeypatch.setattr(detectors, "faces", {302: FACES[:1]})
    export(tmp_path, 1)
    cut = encode(plsc_tf.align_face(photo(302), FACES[0], CUT[::-1]))
    with served(tmp_path, detect="tests.detectors:detect") as server:
        assert post(server, photo(302))[0] == 200
        expected = direct(export(tmp_path, 1, size=(12, 16)), [cut])[0]

        def is_as_expected():
            (face,) = post(server, photo(302))[1]["instance"][0]["faces"]
            return np.allclose(face["embedding"], expected, atol=1e-5)

        wait_for(is_as_expected)


def test_what_is_refused(finding, server):
    status, answer = post(finding, photo(301), b"no picture")
    assert status == 400 and answer["error"].startswith("Image 1: its 10 bytes are no")
    assert post(finding, *[photo(300)] * 17)[0] == 413
    # The other server was started without a detector.
    with Client(f"127.0.0.1:{server['port']}") as client:
        with pytest.raises(ValueError, match="rejected the request: Not Found"):
            client.encode_faces([photo(301)])


def test_forged_exif_tags_do_not_fill_the_log(model_dir, recwarn):
    # Python also remembers each warning: the attacker would fill the memory, too.
    tags = [struct.pack("<HHII", tag, 2, 10**6, 10**9) for tag in range(300, 400)]
    header = struct.pack("<4sIH", b"II*\0", 8, len(tags))
    exif = b"Exif\0\0" + header + b"".join(tags) + bytes(4)
    content = io.BytesIO()
    Image.new("RGB", (300, 260)).save(content, "jpeg", exif=exif)
    with served(model_dir, detect="tests.detectors:detect") as server:
        assert post(server, content.getvalue())[0] == 200
    assert not [w for w in recwarn if "PIL" in w.filename]


def test_a_slow_detection_does_not_block_other_requests(finding, pictures):
    detectors.opened.clear()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(post, finding, *[photo(301)] * 16) for _ in range(5)]
        try:
            # Of 80 photographs, one is searched and 64 wait: a request is refused.
            wait_for(lambda: any(one.done() for one in waiting))
            assert ask(finding, "GET", "/healthz")[0] == 200
            body = {"base64_string": [b64(one) for one in pictures]}
            assert ask(finding, "POST", PLSC, body)[0] == 200
        finally:
            detectors.opened.set()
        assert sorted(one.result()[0] for one in waiting) == [200] * 4 + [503]


@pytest.mark.parametrize(
    "answer", [{}, {"instance": [[]]}, {"instance": [{"faces": [{"box": "x"}]}]}, [1]]
)
def test_answers_without_faces(answer):
    with listening(lambda path, body: (200, answer, {})) as (address, paths):
        with Client(address) as client, pytest.raises(ServiceError):
            client.encode_faces([b"x"])
    assert paths == ["/faces"]
