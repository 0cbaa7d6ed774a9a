"""SavedModels of embedding networks, laid out as TensorFlow Serving expects them."""

import concurrent.futures
import contextlib
import dataclasses
import io
import json
import os
import uuid

import numpy as np
import tensorflow as tf
from absl import logging
from PIL import Image

from plsc_tf.serving import versions, warmup
from plsc_tf.serving.artefacts import Artefacts, check_formats
from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.serving.proof import Bounds, Proof
from plsc_tf.serving.signatures import ClosedSet, Signatures, embedding_function
from plsc_tf.storage import files

# Batch sizes of the requests that TF Serving warms up with.
WARMUP_BATCHES = (1, 32)


@dataclasses.dataclass(frozen=True)
class Extras:
    """What an export holds beside its signatures, and how it is proved.

    Attributes:
        formats: "saved_model", and of "tflite", "tflite_float16", "tflite_int8" and
            "onnx" those that shall be in `assets.extra/`.
        calibration: uint8 [n, height, width, 3], pictures to measure the activations of
            tflite_int8 on.
        card: an `EvaluationCard`, or None.
        class_names: one for each class, or empty.
        pictures: encoded ones to prove the export on; empty: noise.
        accuracy: callable, embed -> {verification set: accuracy}, where embed is a
            callable, uint8 [N, height, width, 3] -> [N, embedding_size]; None without.
        bounds: what the proof must keep.
    """

    formats: tuple[str, ...] = ("saved_model",)
    calibration: np.ndarray | None = None
    card: EvaluationCard | None = None
    class_names: tuple[str, ...] = ()
    pictures: tuple[bytes, ...] = ()
    accuracy: object = None
    bounds: Bounds = Bounds()


def export_saved_model(  # noqa: PLR0913 - every one has a default
    network,
    export_dir,
    *,
    image_size=None,
    normalize=False,
    version=None,
    model_card=None,
    prepare=None,
    classes=0,
    extras=None,
):
    """Writes `<export_dir>/<version>/` and proves that it gives the same embeddings.

    Signatures, the first two with the output `embedding`, float32 [N, embedding_size]:

    - `serving_default`: input `bytes`, string [N], encoded JPEG or PNG pictures of any
      size. An undecodable picture is an error of its request.
    - `images`: input `images`, float32 [N, height, width, 3], RGB in 0..255.
    - `classify`, where asked for: input `bytes`, outputs `classes`, int64 [N, k], and
      `scores`, float32 [N, k], the probabilities of the best k classes, best first.

    Only variables that these read are written: no optimizer slots, and no head without
    `classify`. The folder has a name that TensorFlow Serving ignores until everything
    in it has been loaded again and compared with the network, so a server never sees
    half a model. `assets.extra/` holds model_card.json, proof.json, TF Serving's
    warm-up requests, and what `extras` asks for.

    The export computes in float32, also where the network was trained in half
    precision, which is for the machine at hand.

    Args:
        network: Keras model that maps float32 [N, height, width, 3] in 0..255 to
            [N, embedding_size], or an object whose `inference_network()` returns one
            (a `Classifier`, which averages its replicas' statistics there).
        export_dir: folder of the version folders; created when missing.
        image_size: (height, width) of its input; None takes the network's fixed one.
        normalize: whether to divide the embeddings by their L2 norm.
        version: positive integer; None takes the next after the largest one there.
        model_card: dict for JSON, added to what `assets.extra/model_card.json` always
            holds: image_size, embedding_size, normalize, preprocessing, artefacts,
            tensorflow_version.
        prepare: what makes one encoded picture, a string scalar, uint8 [height, width,
            3], as `Preprocessing.evaluate`; None decodes and resizes it.
        classes: how many classes `classify` tells of each picture; 0: no such
            signature. Needs a network with a `head`, a `Classifier`.
        extras: the `Extras`; None for their defaults.

    Returns:
        Path of the version folder.

    Raises:
        ValueError: an argument has the wrong form, or the network's output has.
        ImportError: a format needs an extra that is not installed.
        FileExistsError: the version is there already; it is never overwritten.
        OSError: `export_dir` is a file or cannot be created.
        RuntimeError: something written disagrees with the network, or a bound does not
            hold; nothing is left.
    """
    export_dir, extras = os.fspath(export_dir), extras or Extras()
    check_formats(extras.formats, extras.calibration)
    versions.prepare(export_dir, version)
    closed_set = _closed_set(network, classes)
    if hasattr(network, "inference_network"):
        network = network.inference_network()
    image_size = _checked_image_size(network, image_size)
    raw = embedding_function(network, image_size)
    signatures = Signatures(raw, image_size, normalize, prepare, closed_set)
    card = {
        "preprocessing": "resize" if prepare is None else "custom",
        **(model_card or {}),
        **(extras.card.thresholds() if extras.card else {}),
        "image_size": list(image_size),
        "embedding_size": raw.structured_outputs.shape[-1],
        "normalize": bool(normalize),
        "tensorflow_version": tf.__version__,
    }
    temporary = os.path.join(export_dir, f".exporting-{uuid.uuid4().hex}")
    try:
        tf.saved_model.save(
            signatures.module, temporary, signatures=signatures.functions()
        )
        artefacts = _outside(Artefacts, temporary, image_size, normalize, extras)
        _write_extras(temporary, extras, _warmup(export_dir, signatures, classes))
        card["artefacts"] = artefacts.described
        text = json.dumps(card, indent=2, sort_keys=True) + "\n"
        _write_model_card(temporary, text)
        with _full_float32():
            _prove(temporary, signatures, artefacts, extras)
        target = versions.publish(temporary, export_dir, version)
    finally:
        if files.exists(temporary):
            files.remove_tree(temporary)
    logging.info("Exported %s", target)
    return target


def _closed_set(network, classes):
    if not classes:
        return None
    if not hasattr(network, "head"):
        raise ValueError(
            "classes=k needs a network with a head, a plsc_tf.Classifier. Received: "
            f"classes={classes}, {type(network).__name__}."
        )
    # Variables made inside a strategy's scope would be mirrored.
    return _outside(ClosedSet, network.head, classes)


def _checked_image_size(network, image_size):
    if image_size is None:
        shape = getattr(network, "input_shape", None)
        if not isinstance(shape, tuple) or len(shape) != 4 or None in shape[1:3]:
            raise ValueError(
                "image_size=(height, width) is needed for a network without a fixed "
                f"input size. Received: image_size=None, input_shape={shape}."
            )
        image_size = shape[1:3]
    sizes = tuple(int(size) for size in image_size)
    if len(sizes) != 2 or min(sizes) < 1:
        raise ValueError(
            "image_size must be (height, width), both positive. Received: "
            f"image_size={image_size!r}."
        )
    return sizes


def _outside(function, *arguments):
    """Calls a function outside of every strategy's scope, where a new thread stands.

    Inside, loading would make mirrored variables, and fail.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as outside:
        return outside.submit(function, *arguments).result()


@contextlib.contextmanager
def _full_float32():
    """Lets GPUs multiply all bits of a float32 for a while.

    Ten bits of the mantissa (TensorFloat-32) are TensorFlow's default on new ones, and
    would be off by more than other formats, computed on a CPU, may be.
    """
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def _noise(count, image_size):
    return np.random.default_rng(0).integers(0, 256, (count, *image_size, 3), np.uint8)


def _encoded(picture, file_format):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, file_format)
    return file.getvalue()


def _warmup(export_dir, signatures, classes):
    """(model name, requests) as `warmup.write` takes them."""
    (noise,) = _noise(1, signatures.image_size)
    picture = _encoded(noise, "JPEG")
    requests = [
        ("serving_default", {"bytes": [picture] * count}) for count in WARMUP_BATCHES
    ]
    if classes:
        requests.append(("classify", {"bytes": [picture]}))
    return os.path.basename(os.path.abspath(export_dir)), requests


def _write_extras(folder, extras, warm_up):
    # TF Serving and tf.saved_model.load leave assets.extra/ alone.
    extra = os.path.join(folder, "assets.extra")
    files.make_dirs(extra)
    warmup.write(folder, *warm_up)
    content = {}
    if extras.class_names:
        content["classes.txt"] = "".join(f"{name}\n" for name in extras.class_names)
    if extras.card:
        content["card.json"] = json.dumps(extras.card.content, indent=1) + "\n"
        if extras.card.page:
            content["card.html"] = extras.card.page
    for name, text in content.items():
        encoded = text if isinstance(text, bytes) else text.encode()
        files.write(files.join(extra, name), encoded)


def _write_model_card(folder, text):
    files.write(files.join(folder, "assets.extra", "model_card.json"), text.encode())


def _prove(folder, signatures, artefacts, extras):
    """Runs everything that was written; PNG loses nothing of the noise."""
    encoded, basis = list(extras.pictures), "pictures"
    if not encoded:
        encoded = [_encoded(one, "PNG") for one in _noise(3, signatures.image_size)]
        basis = "pictures of noise"
    pictures = signatures.prepare(encoded)

    def network(images):
        return signatures.embed(tf.constant(images, tf.float32)).numpy()

    proof = Proof(
        network(pictures), extras.bounds, basis, extras.accuracy, reference=network
    )
    _outside(artefacts.prove, proof, encoded, pictures)
    if "classify" in artefacts.signatures:
        floats = tf.constant(pictures, tf.float32)
        expected = {k: v.numpy() for k, v in signatures.classify(floats).items()}
        found = _outside(artefacts.run, "classify", encoded)
        proof.add_classes(found["scores"], found["classes"], expected)
    proof.write(folder)
