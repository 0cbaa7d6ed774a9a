"""SavedModels of embedding networks, laid out as TensorFlow Serving expects them."""

import concurrent.futures
import json
import os
import uuid

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.backbones.precision import in_float32
from plsc_tf.data import images as image_ops
from plsc_tf.serving import versions

# Largest difference between the network and its export, relative to the largest
# embedding value where that exceeds 1 (not every network ends in a batch norm).
TOLERANCE = 1e-4


def export_saved_model(
    network,
    export_dir,
    *,
    image_size=None,
    normalize=False,
    version=None,
    model_card=None,
):
    """Writes `<export_dir>/<version>/` and proves that it gives the same embeddings.

    Signatures, both with the output `embedding`, float32 [N, embedding_size]:

    - `serving_default`: input `bytes`, string [N], encoded JPEG or PNG pictures of any
      size. An undecodable picture is an error of its request.
    - `images`: input `images`, float32 [N, height, width, 3], RGB in 0..255.

    Only variables that the embedding reads are written: no head, no optimizer slots.
    The folder has a name that TensorFlow Serving ignores until it has been loaded
    again and compared with the network, so a server never sees half a model.

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
            holds: image_size, embedding_size, normalize, tensorflow_version.

    Returns:
        Path of the version folder.

    Raises:
        ValueError: an argument has the wrong form, or the network's output has.
        FileExistsError: the version is there already; it is never overwritten.
        OSError: `export_dir` is a file or cannot be created.
        RuntimeError: the written model disagrees with the network; nothing is left.
    """
    export_dir = os.fspath(export_dir)
    versions.prepare(export_dir, version)
    if hasattr(network, "inference_network"):
        network = network.inference_network()
    image_size = _checked_image_size(network, image_size)
    embed = _embedding_function(network, image_size, normalize)
    module, signatures = _serving_module(embed, image_size)
    card = _card_text(model_card or {}, embed, normalize)
    temporary = os.path.join(export_dir, f".exporting-{uuid.uuid4().hex}")
    try:
        tf.saved_model.save(module, temporary, signatures=signatures)
        _write_model_card(temporary, card)
        _compare_with_network(temporary, embed, image_size)
        target = versions.publish(temporary, export_dir, version)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)
    logging.info("Exported %s", target)
    return target


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


def _embedding_function(network, image_size, normalize):
    """Traces the network: a concrete function, [N, h, w, 3] -> [N, embedding_size]."""

    @tf.function(
        input_signature=[tf.TensorSpec([None, *image_size, 3], tf.float32, "images")]
    )
    def embed(images):
        if isinstance(network, keras.Model):
            with in_float32(network):
                embeddings = network(images, training=False)
        else:
            embeddings = network(images)
        embeddings = tf.cast(embeddings, tf.float32)
        if embeddings.shape.rank != 2 or embeddings.shape[1] is None:
            raise ValueError(
                "The network must return [N, embedding_size]. Received: shape "
                f"{embeddings.shape} for images of shape {images.shape}."
            )
        return tf.math.l2_normalize(embeddings, axis=1) if normalize else embeddings

    return embed.get_concrete_function()


def _serving_module(embed, image_size):
    """The object to save, which holds what `embed` reads, and its two signatures."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "bytes")])
    def from_bytes(encoded):
        def picture(one):
            resized = image_ops.resize(image_ops.decode(one), image_size)
            return tf.ensure_shape(resized, [*image_size, 3])

        spec = tf.TensorSpec([*image_size, 3], tf.uint8)
        images = tf.map_fn(picture, encoded, fn_output_signature=spec)
        return {"embedding": embed(tf.cast(images, tf.float32))}

    @tf.function(
        input_signature=[tf.TensorSpec([None, *image_size, 3], tf.float32, "images")]
    )
    def from_images(images):
        return {"embedding": embed(images)}

    module = tf.Module()
    # The network itself would bring its head and optimizer into the files.
    module.read_variables = list(embed.variables)
    return module, {"serving_default": from_bytes, "images": from_images}


def _card_text(model_card, embed, normalize):
    _, height, width, _ = embed.structured_input_signature[0][0].shape
    card = {
        **model_card,
        "image_size": [height, width],
        "embedding_size": embed.structured_outputs.shape[-1],
        "normalize": bool(normalize),
        "tensorflow_version": tf.__version__,
    }
    return json.dumps(card, indent=2, sort_keys=True) + "\n"


def _write_model_card(folder, text):
    # TF Serving and tf.saved_model.load leave assets.extra/ alone.
    extra = os.path.join(folder, "assets.extra")
    tf.io.gfile.makedirs(extra)
    with tf.io.gfile.GFile(os.path.join(extra, "model_card.json"), "w") as file:
        file.write(text)


def _compare_with_network(folder, embed, image_size):
    """Runs both signatures of the written model on noise; PNG loses nothing of it."""
    noise = np.random.default_rng(0).integers(0, 256, (3, *image_size, 3), np.uint8)
    images = tf.constant(noise, tf.float32)
    encoded = tf.stack([tf.io.encode_png(image) for image in noise])
    expected = embed(images).numpy()
    if not np.isfinite(expected).all():
        raise RuntimeError(
            "The network's embeddings are not finite, so it was not exported. Has the "
            "training diverged?"
        )
    inputs = {"images": images, "serving_default": encoded}
    # Inside a strategy's scope the load would make mirrored variables, and fail. A
    # new thread stands outside of every scope.
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as outside:
        results = outside.submit(_run_signatures, folder, inputs).result()
    allowed = TOLERANCE * max(1.0, np.abs(expected).max())
    for name, found in results.items():
        difference = np.abs(found - expected).max()
        if not difference <= allowed:
            raise RuntimeError(
                f"The exported signature {name!r} disagrees with the network: largest "
                f"difference {difference:.3g}, allowed {allowed:.3g}. Nothing was left "
                "in export_dir."
            )


def _run_signatures(folder, inputs):
    """Loads a SavedModel: {signature: its input} -> {signature: embeddings}."""
    loaded = tf.saved_model.load(folder)
    return {
        name: loaded.signatures[name](tensor)["embedding"].numpy()
        for name, tensor in inputs.items()
    }
