"""TensorFlow Lite and ONNX files give the network's embeddings, and are proved to."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data.images import encode
from plsc_tf.serving import formats
from plsc_tf.serving.export import LEAST_COSINES, Extras, export_saved_model
from tests.serving.tiny import FORMATS, IMAGES, SIZE, cosines, network, read


def normalized(model):
    """The network's embeddings of `IMAGES` at length 1."""
    rows = model(IMAGES.astype(np.float32), training=False).numpy()
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def run_lite(folder, name, images):
    path = pathlib.Path(folder, "assets.extra", formats.FILES[name])
    signature = tf.lite.Interpreter(str(path)).get_signature_runner()
    return np.concatenate([signature(images=one[None])["embedding"] for one in images])


@pytest.mark.parametrize("name", ["tflite", "tflite_float16"])
def test_lite_files_of_floats(exported, name):
    model, folder = exported
    rows = run_lite(folder, name, IMAGES.astype(np.float32))
    atol = 1e-5 if name == "tflite" else 2e-3
    np.testing.assert_allclose(rows, normalized(model), atol=atol)
    told = read(folder, "model_card.json")["artefacts"]
    sizes = [told[f"tflite{kind}"]["bytes"] for kind in ("_int8", "_float16", "")]
    assert sizes == sorted(set(sizes))


def test_the_integer_file_takes_the_pixels_as_they_are(exported):
    model, folder = exported
    found = run_lite(folder, "tflite_int8", IMAGES)
    expected = model(IMAGES.astype(np.float32), training=False).numpy()
    assert cosines(found, expected).min() > 0.99
    # Not of length 1, which eight bits cannot tell well; the card says so.
    lengths = [np.linalg.norm(rows, axis=1) for rows in (found, expected)]
    np.testing.assert_allclose(*lengths, rtol=0.05)
    told = read(folder, "model_card.json")["artefacts"]["tflite_int8"]
    assert (told["normalize"], told["integers_only"]) == (False, True)
    path = pathlib.Path(folder, told["file"])
    (entry,) = tf.lite.Interpreter(str(path)).get_input_details()
    assert entry["dtype"] == np.uint8
    assert entry["quantization"] == (1.0, 0)


def test_the_proof_is_stored(exported):
    _, folder = exported
    proof = read(folder, "proof.json")
    assert (proof["pictures"], proof["basis"]) == (6, "images")
    rows = {row["artefact"]: row for row in proof["artefacts"]}
    assert set(rows) == {"serving_default", "images", *FORMATS[1:]}
    assert rows["tflite"]["max_difference"] < 1e-4
    assert 0.97 <= rows["tflite_int8"]["mean_cosine"] < 1
    assert rows["tflite_int8"]["min_cosine"] <= rows["tflite_int8"]["mean_cosine"]
    # Of embeddings of length 1, as the export's are.
    assert rows["tflite_int8"]["max_difference"] < 0.1
    for name in ("images", *FORMATS[1:]):
        assert rows[name]["verification"]["set"]["change"] == 0.0


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        (
            Extras(formats=("saved_model", "tflite_int8"), calibration=IMAGES),
            "'tflite_int8' disagrees.*mean cosine .* least 1.1",
        ),
        (
            Extras(accuracy=lambda embed, figures=[0.9, 0.88]: {"set": figures.pop(0)}),
            "accuracy on set drops from 0.9000 to 0.8800",
        ),
    ],
)
def test_a_bound_that_fails_publishes_nothing(tmp_path, monkeypatch, extras, message):
    monkeypatch.setitem(LEAST_COSINES, "tflite_int8", 1.1)
    with pytest.raises(RuntimeError, match=message):
        export_saved_model(network(), tmp_path, extras=extras)
    assert not list(tmp_path.iterdir())


def test_onnx_has_insightfaces_layout(exported):
    for name in ("onnx", "tf2onnx", "onnxruntime"):
        pytest.importorskip(name, reason="needs pip install 'plsc_tf[onnx]'")
    import onnx
    import onnxruntime

    model, folder = exported
    path = pathlib.Path(folder, "assets.extra", "embedding.onnx")
    session = onnxruntime.InferenceSession(str(path))
    (entry,), (result,) = session.get_inputs(), session.get_outputs()
    assert (entry.name, entry.shape) == ("data", ["N", 3, *SIZE])
    assert (result.name, result.shape) == ("embedding", ["N", 16])
    # From these insightface's ArcFaceONNX knows that the model scales pixels.
    nodes = onnx.load(path).graph.node[:8]
    assert [node.name for node in nodes][:2] == ["Sub_pixels", "Mul_pixels"]
    data = IMAGES.transpose(0, 3, 1, 2).astype(np.float32)
    expected = normalized(model)
    for count in (1, 6):
        rows = session.run(None, {"data": data[:count]})[0]
        np.testing.assert_allclose(rows, expected[:count], atol=1e-4)


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        (Extras(formats=("saved_model", "tflight")), "Received: .*tflight"),
        (Extras(formats=("saved_model", "tflite_int8")), "requires calibration images"),
        (Extras(formats=("tflite",)), "must contain saved_model. Received: .*tflite"),
    ],
)
def test_wrong_formats_are_found_first(tmp_path, extras, message):
    with pytest.raises(ValueError, match=message):
        export_saved_model(None, tmp_path / "none", extras=extras)
    assert not (tmp_path / "none").exists()


def test_images_are_prepared_as_in_the_run(tmp_path):
    from plsc_tf.data import preprocessing

    frame = preprocessing.build("inception", SIZE, None)
    model = network()
    options = {"prepare": frame.evaluate, "model_card": {"preprocessing": "inception"}}
    folder = export_saved_model(model, tmp_path, **options)
    large = np.kron(IMAGES[0], np.ones((3, 3, 1), np.uint8))
    framed = frame.evaluate(tf.constant(large))
    served = tf.saved_model.load(folder).signatures["serving_default"]
    found = served(bytes=tf.constant([encode(large)]))["embedding"]
    expected = model(tf.cast(framed, tf.float32)[None], training=False)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    whole = model(IMAGES[:1].astype(np.float32), training=False)
    assert np.abs(found - whole).max() > 0.01, "the frame must matter"
    assert read(folder, "model_card.json")["preprocessing"] == "inception"
