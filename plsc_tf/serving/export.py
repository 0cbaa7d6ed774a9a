"""Exports embedding networks as SavedModels in TensorFlow Serving's layout."""

import hashlib
import json
import os
import uuid
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.parallel.rows import outside_scope
from plsc_tf.requirements import check_image_size, require
from plsc_tf.serving import formats, proof, versions, warmup
from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.serving.signatures import ClosedSet, Signatures
from plsc_tf.storage import files, outputs, transfer

# Batch sizes of the warm-up requests for TF Serving.
WARMUP_BATCHES = (1, 32)
# Smallest mean cosine between the embeddings of a file and the network's with which an
# export is published; those of other files must be equal, within a tolerance.
LEAST_COSINES = {"tflite_float16": 0.999, "tflite_int8": 0.97}


class Extras(NamedTuple):
    """The additional parts of an export, and how the export is verified.

    Attributes:
        formats: "saved_model", and any of "tflite", "tflite_float16", "tflite_int8" and
            "onnx", which are written into `assets.extra/`.
        calibration: uint8 `[n, height, width, 3]`; images on which the activation
            ranges for tflite_int8 are measured, or None.
        card: an `EvaluationCard`, or None.
        pictures: encoded images on which the export is compared with the network; if
            empty, images of noise.
        validation: encoded images of a validation set, on which the quality of images
            is calibrated; with fewer than 100, the export has no quality.
        accuracy: function that takes `embed`, a function from uint8
            `[N, height, width, 3]` to `[N, embedding_size]`, and returns
            {verification set: accuracy}; None skips the comparison of accuracies.
        accuracy_loss: largest drop in verification accuracy, for any file.
    """

    formats: tuple[str, ...] = ("saved_model",)
    calibration: np.ndarray | None = None
    card: EvaluationCard | None = None
    pictures: tuple[bytes, ...] = ()
    validation: tuple[bytes, ...] = ()
    accuracy: Callable | None = None
    accuracy_loss: float = 0.01


def export_saved_model(  # noqa: PLR0913 - every one has a default
    network,
    export_dir: str | os.PathLike,
    *,
    image_size: tuple[int, int] | None = None,
    normalize: bool = False,
    model_card: dict | None = None,
    prepare: Callable | None = None,
    classes: int = 0,
    extras: Extras | None = None,
) -> str:
    """Writes `<export_dir>/<version>/` and verifies that it gives the same embeddings.

    The version is the largest existing one plus 1.

    The first two signatures return `embedding`, float32 `[N, embedding_size]`:

    - `serving_default`: input `bytes`, string `[N]`, encoded JPEG or PNG images of any
      size. If an image cannot be decoded, its request fails.
    - `images`: input `images`, float32 `[N, height, width, 3]`, RGB in 0..255.
    - `classify`, if `classes` is given: input `bytes`, outputs `classes`, int64
      `[N, k]`, and `scores`, float32 `[N, k]`: the k most probable classes and their
      probabilities, in descending order.
    - `quality`, if `extras` has a validation set: input `bytes`, outputs `embedding`
      and `quality`, float32 `[N]`; see `plsc_tf.evaluation.quality`.
    - `verify`, if the card's threshold has a calibration: input `bytes`, string
      `[N, 2]`, pairs of images; outputs `score`, the cosine, `llr` and `probability`,
      see `plsc_tf.evaluation.calibration`, float64 `[N]`, and `decision`, bool `[N]`,
      whether the score exceeds the threshold. If the card calibrates groups, there is
      also `group_llrs`, float64 `[N, groups]`, sorted by the names of these groups.
      `verify_embeddings` has the input `embeddings`, float32
      `[N, 2, embedding_size]`, and the same outputs.

    The export contains only variables that the signatures read: no optimizer slots, and
    the head only for `classify`. Until all files have been loaded again and compared
    with the network, the folder has a name that TensorFlow Serving ignores, so a server
    never loads an incomplete model. `assets.extra/` holds model_card.json, proof.json,
    TF Serving's warm-up requests, and the files that `extras` names.

    The export computes in float32, even if the network was trained in half precision.

    Args:
        network: Keras model that maps float32 `[N, height, width, 3]` in 0..255 to
            `[N, embedding_size]`, or an object whose `inference_network()` returns one
            (such as a `Classifier`, which averages its replicas' statistics there).
        export_dir: folder of the version folders; created if missing.
        image_size: (height, width) of the input; None uses the network's fixed size.
        normalize: whether to divide the embeddings by their L2 norm.
        model_card: JSON-serializable dict, added to the entries that
            `assets.extra/model_card.json` always has: image_size, embedding_size,
            normalize, preprocessing, fingerprint, artefacts, tensorflow_version.
        prepare: maps one encoded image, a string scalar, to uint8 `[height, width, 3]`,
            like `Preprocessing.evaluate`; None decodes and resizes it.
        classes: number of classes that `classify` returns for each image; 0 omits this
            signature. Needs a network with a `head`, such as a `Classifier`.
        extras: the `Extras`; None uses their defaults.

    Returns:
        The path of the version folder.

    Raises:
        ValueError: an argument is invalid, the network's output has the wrong shape, or
            a link leads out of the folder of `export_dir`.
        ImportError: a format needs an extra that is not installed.
        OSError: `export_dir` is a file or cannot be created, or another process wrote
            the same version at the same time; none is ever overwritten.
        RuntimeError: a file disagrees with the network, a bound does not hold, or the
            network's embeddings contain NaN or infinity; no version folder is left.
    """
    export_dir, extras = os.fspath(export_dir), extras or Extras()
    formats.check_formats(extras.formats, extras.calibration)
    outputs.require_closed(export_dir, allow_siblings=True)
    files.make_dirs(export_dir)
    head = getattr(network, "head", None) if classes else None
    rule = f"classes={classes} requires a network with a head (a plsc_tf.Classifier)"
    require(not classes or head is not None, rule, network=type(network).__name__)
    if hasattr(network, "inference_network"):
        network = network.inference_network()
    sizes = (getattr(network, "input_shape", None) or ())[1:3]  # None: any size
    image_size = check_image_size(image_size or sizes)

    def export():
        closed_set = ClosedSet(head, classes) if classes else None
        threshold = extras.card.threshold() if extras.card else None
        options = closed_set, extras.validation, threshold
        signatures = Signatures(network, image_size, normalize, prepare, *options)
        card = {
            "preprocessing": "resize" if prepare is None else "custom",
            **(model_card or {}),
            "image_size": list(image_size),
            "embedding_size": signatures.embedding_size,
            "normalize": bool(normalize),
            "tensorflow_version": tf.__version__,
        }
        if threshold:
            card["threshold"] = threshold
        if signatures.percentiles:
            norms = {"norm_percentiles": signatures.percentiles}
            card["quality"] = {"images": len(extras.validation), **norms}
        card["fingerprint"] = _fingerprint(signatures, card)
        return _write(export_dir, signatures, card, extras)

    # In a strategy's scope, new and loaded variables would be mirrored, and loading
    # would fail.
    target = outside_scope(export)
    logging.info("Exported %s", target)
    return target


def _write(export_dir, signatures, card, extras):
    """Writes, verifies and publishes the version folder; returns its path."""
    hidden = files.join(export_dir, f".exporting-{uuid.uuid4().hex}")
    local = transfer.LocalFolder(hidden)
    scratch = local.path
    # By default, recent GPUs multiply with TensorFloat-32, which keeps only ten bits of
    # the mantissa. Other formats compute on a CPU, and would differ by too much.
    config = tf.config.experimental
    tf32 = config.tensor_float_32_execution_enabled()
    config.enable_tensor_float_32_execution(False)
    try:
        tf.saved_model.save(signatures.module, scratch, signatures=signatures.functions)
        loaded = tf.saved_model.load(scratch)
        common = signatures.image_size, card["normalize"], extras.calibration
        chosen = [name for name in formats.FILES if name in extras.formats]
        written = {n: formats.write(n, loaded, scratch, *common) for n in chosen}
        name = os.path.basename(os.path.abspath(export_dir))
        (noise,) = _noise(1, signatures.image_size)
        requests = [("serving_default", count) for count in WARMUP_BATCHES]
        optional = signatures.functions.keys() & {"classify", "quality"}
        requests += [(name, 1) for name in sorted(optional)]
        warmup.write(scratch, name, tf.io.encode_jpeg(noise).numpy(), requests)
        card["artefacts"] = {name: entry for name, (entry, _) in written.items()}
        comparison = _compare(signatures, loaded, written, extras)
        texts = {
            "model_card.json": json.dumps(card, indent=2, sort_keys=True),
            "proof.json": json.dumps(comparison, indent=2),
        }
        if extras.card:
            texts["card.json"] = json.dumps(extras.card.content, indent=1)
        folder = files.join(scratch, "assets.extra")
        for name, text in texts.items():
            content = f"{text}\n".encode(errors="backslashreplace")
            files.write(files.join(folder, name), content)
        if extras.card and extras.card.page:
            files.write(files.join(folder, "card.html"), extras.card.page)
        local.upload()
        return versions.publish(hidden, export_dir)
    finally:
        config.enable_tensor_float_32_execution(tf32)
        if files.exists(hidden):
            files.remove_tree(hidden)


def _fingerprint(signatures, card):
    """Returns a digest of what embeddings depend on; it is the same in every export."""
    names, nodes = ["image_size", "normalize"], []
    if card["preprocessing"] == "custom" or "model_name" not in card:
        # Nothing names what is computed.
        function = signatures.functions["serving_default"].get_concrete_function()
        graph = function.graph.as_graph_def()
        nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    else:
        names += ["model_name", "model_options", "preprocessing"]
    # The order of nodes differs from process to process.
    texts = sorted(f"{node.op} {_attributes(node)}" for node in nodes)
    digest = hashlib.sha256(repr([*map(card.get, names), *texts]).encode())
    for variable in signatures.module.read_variables:
        digest.update(np.ascontiguousarray(variable.numpy()))
    return digest.hexdigest()


def _attributes(node):
    """Returns a node's attributes, except names of functions and those of a machine."""
    texts = sorted((name, str(value)) for name, value in node.attr.items())
    other = "_", "config_proto"
    return [x for x in texts if not x[0].startswith(other) and "func {" not in x[1]]


def _noise(count, image_size):
    return np.random.default_rng(0).integers(0, 256, (count, *image_size, 3), np.uint8)


def _compare(signatures, loaded, written, extras):
    """Compares all signatures and files with the network; returns proof.json's content.

    Raises:
        RuntimeError: a comparison fails, or the embeddings contain NaN or infinity.
    """
    encoded, basis = list(extras.pictures), "images"
    if not encoded:
        noise = _noise(3, signatures.image_size)
        encoded = [tf.io.encode_png(image).numpy() for image in noise]
        basis = "images of noise"

    def network(images):
        return signatures.embed(tf.constant(images, tf.float32)).numpy()

    def exported(images):
        images = tf.constant(images, tf.float32)
        return loaded.signatures["images"](images=images)["embedding"].numpy()

    def serve(signature):
        return loaded.signatures[signature](bytes=tf.constant(encoded))

    images = signatures.prepare(encoded)
    expected = network(images)
    rule = "The network was not exported: its embeddings contain NaN or infinity"
    advice = "Check whether the training diverged"
    require(np.isfinite(expected).all(), rule, advice, raises=RuntimeError)
    rows = [
        proof.compare(name, serve(name)["embedding"].numpy(), expected)
        for name in ("serving_default", "quality")
        if name in signatures.functions
    ]
    before = extras.accuracy(network) if extras.accuracy else {}
    for name, (_, embed) in {"images": (None, exported), **written}.items():
        row = proof.compare(name, embed(images), expected, LEAST_COSINES.get(name))
        if before:
            after, allowed = extras.accuracy(embed), extras.accuracy_loss
            row["verification"] = proof.verify(name, before, after, allowed)
        rows.append(row)
    if "classify" in signatures.functions:
        best = signatures.classify(tf.constant(images, tf.float32))
        found = serve("classify")
        scores = found["scores"].numpy(), best["scores"].numpy()
        row = proof.compare("classify", *scores)
        row["same_classes"] = float(np.mean(found["classes"] == best["classes"]))
        rows.append(row)
    basis = {"pictures": len(images), "basis": basis}
    return basis | {"accuracy_loss_allowed": extras.accuracy_loss, "artefacts": rows}
