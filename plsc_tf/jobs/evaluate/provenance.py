"""Facts for the card: origins, checksums, shared images and worst pairs."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from PIL import Image

import plsc_tf
from plsc_tf.checkpoints import manifest
from plsc_tf.data import images
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listings import Item
from plsc_tf.data.checks.survey import examine, survey
from plsc_tf.data.image_limit import checked
from plsc_tf.data.images import encode
from plsc_tf.jobs import origins
from plsc_tf.jobs.run_report import PASSWORD
from plsc_tf.jobs.training_data import unreadable
from plsc_tf.options import cli
from plsc_tf.options.settings import select
from plsc_tf.storage import checksums, files

# Number of shared images to name, of worst pairs per kind, and the maximum height and
# width of their images in pixels.
_FIRST, _WORST, _SIDE = 3, 8, 128
# The options that repeat an evaluation.
REPEATED = (
    *("dataset", *cli.TRAINED_MODEL, "no ckpt_file_name", "no fs_ugi", "saved_model"),
    "no max_megapixels",  # a card must not allow larger images
    *("image_dir", "val_targets", "test_batch_size", "flip", "scoring"),
    *("no card_dir", "no plot_dir", "no reproduce", "no shard"),
    "no model_save_dir",  # the card names the checkpoint
)


def of_model(trained):
    """Returns JSON-serializable facts about a `Trained` model."""
    path = trained.checkpoint
    content = manifest.read(path)
    algorithm = checksums.algorithm_of(content["files"])
    digest = hashlib.sha256()
    for name, entry in sorted(content["files"].items()):
        digest.update(f"{name} {entry[algorithm]}\n".encode())
    described = files.checksum(files.join(path, manifest.NAME), "sha256")
    return {
        "model_name": trained.settings.model.model_name,
        "embedding_size": trained.model.embedding_size,
        "image_size": "{} x {}".format(*trained.model.image_size),
        "checkpoint": path,
        "step": content["state"].get("global_step", "unknown"),
        "manifest_sha256": described["sha256"],
        "weights_sha256": digest.hexdigest(),
        "plsc_tf": plsc_tf.__version__,
        **origins.facts(origins.of_checkpoint(path)),
    }


def options(settings) -> dict:
    """Returns the options that repeat an evaluation, JSON-serializable.

    They are those that the user set, without outputs, secrets and URLs with passwords.
    """
    values, given = settings.as_dict(), settings.given
    names = [one.name for one in select(REPEATED) if one.name in given]
    return {n: values[n] for n in names if not PASSWORD.search(str(values[n]))}


def of_data(trained):
    """Returns JSON-serializable facts about the data of a `Trained` model's run."""
    dataset, state = trained.run.dataset, manifest.read(trained.checkpoint)["state"]
    data = state.get("data", {})
    return {
        "dataset_name": dataset.dataset_name,
        "dataset_dir": dataset.dataset_dir,
        "examples": data.get("images") or "unknown",
        "classes": state["num_classes"],
        "contents_sha256": data.get("contents", "unknown"),
    }


def set_checksum(pairs):
    """Computes the SHA-256 of a verification set.

    For a .bin file, it is the hash of the file, as printed by `sha256sum`. Otherwise,
    the input is the concatenated SHA-256 digests of the images, followed by the pairs
    as little-endian int64: all left images, all right images, and 1 or 0 for each pair.
    """
    if pairs.path.endswith(".bin"):
        return files.checksum(pairs.path, "sha256")["sha256"]
    digest = hashlib.sha256()
    for image in pairs.images:
        content = image if isinstance(image, bytes) else np.ascontiguousarray(image)
        digest.update(hashlib.sha256(content).digest())
    for column in (pairs.left, pairs.right, pairs.same):
        digest.update(np.asarray(column, "<i8").tobytes())
    return digest.hexdigest()


def fingerprints(images) -> np.ndarray:
    """Returns 64-bit hashes of the bytes and pixels of images, uint64 `[2, images]`.

    Args:
        images: iterable of the images' bytes or pixels.
    """
    items = (examine(Item(content=image)) for image in images)
    hashes = [(one.byte_hash, one.pixel_hash) for one in items]
    return np.array(hashes, np.uint64).reshape(-1, 2).T


def overlaps(sets, training_data=None):
    """Finds images that each set shares with other sets or the training set.

    Args:
        sets: {set: (its images' `fingerprints`, their names or () without names)}.
        training_data: `TrainingData`, all of which is read unless it differs from that
            of the training; None omits the training set.

    Returns:
        {set: {other: {"pictures", "same_bytes", "same_pixels", "first"}}}, with
        {"note"} in place of the counts if the sets were not compared.
    """
    training = {"note": "not compared: --card_duplicates=false"}
    if training_data and sets:
        training = _training(training_data)
    return {
        name: {
            other: _shared(own, hashes, names)
            for other, (hashes, _) in {"training set": (training, ()), **sets}.items()
            if other != name
        }
        for name, (own, names) in sets.items()
    }


def _training(training_data):
    """Returns the training set's (byte hashes, pixel hashes), or {"note": reason}."""
    if reason := training_data.difference:
        return {"note": f"not compared: {reason}"}
    try:
        table = survey(training_data.open_listing(), Findings(), examine)
    except (OSError, ValueError) as error:
        return {"note": f"not compared: {unreadable(error)}"}
    return table["byte_hash"], table["pixel_hash"]


def _shared(own, other, names):
    if isinstance(other, dict):
        return other  # a note that the sets were not compared
    hashes = zip(own, other, strict=True)
    same_bytes, same_pixels = (np.isin(a, b) & (a != 0) for a, b in hashes)
    rows = np.flatnonzero(same_bytes | same_pixels)[:_FIRST].tolist()
    return {
        "pictures": len(other[0]),
        "same_bytes": int(same_bytes.sum()),
        "same_pixels": int(same_pixels.sum()),
        "first": [names[row] if names else f"image {row}" for row in rows],
    }


def add_worst(
    report, scores, sides: np.ndarray, names: Sequence, read: Callable
) -> None:
    """Adds the worst same and different pairs to a report, with their images.

    Args:
        report: the `SetReport`; its threshold accepts or rejects the pairs.
        scores: `PairScores`.
        sides: int `[2, pairs]`, image indices.
        names: the images' names.
        read: callable, image index -> the image's bytes or pixels, or None if there is
            no image.
    """
    distances = scores.distances
    for kind, rows, order in (
        ("false accept", np.flatnonzero(~scores.same), 1),
        ("false reject", np.flatnonzero(scores.same), -1),
    ):
        ordered = rows[np.argsort(order * distances[rows], kind="stable")][:_WORST]
        for row in ordered.tolist():
            left, right = sides[:, row].tolist()
            jpegs = _jpeg(read(left)), _jpeg(read(right))
            if all(jpegs):
                report.images[len(report.worst)] = jpegs
            squared = float(distances[row])
            pair = {"kind": kind, "cosine": 1 - squared / 2, "squared_l2": squared}
            pair["accepted"] = bool(squared < report.limit)
            pair |= {"left": str(names[left]), "right": str(names[right])}
            report.worst.append(pair)


def short_name(path: str) -> str:
    """Returns a path's file name, with the folder unless the name starts with it."""
    *_, folder, file = ("", *path.replace("\\", "/").split("/"))
    return file if file.startswith(folder) else f"{folder}/{file}"


def _jpeg(image):
    """Returns a small JPEG of an image; None if there is none to show."""
    if image is None:
        return None
    try:
        pixels = images.to_rgb(checked(tf.convert_to_tensor(image))).numpy()
    except (tf.errors.OpError, ValueError):
        return None
    picture = Image.fromarray(pixels)
    picture.thumbnail((_SIDE, _SIDE))
    return encode(picture, "JPEG", quality=88)
