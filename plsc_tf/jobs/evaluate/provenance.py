"""Where a model, its data and a verification set come from: hashes, shared images."""

import hashlib

import numpy as np

import plsc_tf
from plsc_tf.checkpoints import manifest
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listings import open_listing
from plsc_tf.data.checks.survey import examine, survey
from plsc_tf.jobs.builders import recipe
from plsc_tf.storage import files

_FIRST = 3


def of_model(trained):
    """What a card says about a `Trained` model: plain values."""
    path = trained.checkpoint
    content = manifest.read(path)
    digest = hashlib.sha256()
    for name, entry in sorted(content["files"].items()):
        digest.update(f"{name} {entry['sha256']}\n".encode())
    return {
        "model_name": trained.settings.model.model_name,
        "embedding_size": trained.model.embedding_size,
        "image_size": "{} x {}".format(*trained.model.image_size),
        "checkpoint": path,
        "step": content["state"].get("global_step", "unknown"),
        "manifest_sha256": files.checksum(files.join(path, manifest.NAME))[1],
        "weights_sha256": digest.hexdigest(),
        "plsc_tf": plsc_tf.__version__,
    }


def of_data(settings):
    """What a card says about the training data: plain values."""
    dataset = settings.dataset
    facts = {"dataset_name": dataset.dataset_name, "dataset_dir": dataset.dataset_dir}
    try:
        source = recipe.open_source(settings)
    except (OSError, ValueError) as error:
        return facts | {"note": f"not read: {error}"}
    return facts | {
        "examples": source.num_examples or "unknown",
        "classes": source.num_classes or "unknown",
        "contents_sha256": source.contents(),
    }


def set_checksum(pairs):
    """SHA-256 of a verification set.

    Of the file itself for a .bin, as `sha256sum` gives it. Else of the images' own
    SHA-256, one after the other, and the pairs as little-endian int64: all on the left,
    all on the right, and 1 or 0.
    """
    if pairs.path.endswith(".bin"):
        return files.checksum(pairs.path)[1]
    digest = hashlib.sha256()
    for image in pairs.images:
        content = image if isinstance(image, bytes) else np.ascontiguousarray(image)
        digest.update(hashlib.sha256(content).digest())
    for column in (pairs.left, pairs.right, pairs.same):
        digest.update(np.asarray(column, "<i8").tobytes())
    return digest.hexdigest()


class Fingerprints:
    """Bytes and pixels of the images of each verification set, 64 bits of each."""

    def __init__(self):
        self._sets = {}

    def add(self, name, pictures, names):
        """Adds a set.

        Args:
            name: of the set.
            pictures: iterable of their bytes or pixels; those that cannot be read have
                been reported before.
            names: of the images; () without.
        """
        hashes = [(one.byte_hash, one.pixel_hash) for one in map(examine, pictures)]
        of_bytes, of_pixels = np.array(hashes, np.uint64).reshape(-1, 2).T
        self._sets[name] = of_bytes, of_pixels, names

    def overlaps(self, settings, with_training=True):
        """Images of each set that are in another one or in the training set.

        Args:
            settings: whose `dataset` is the training set.
            with_training: whether to read that, all of it.

        Returns:
            {set: {other: {"images", "same_bytes", "same_pixels", "first"}}}, or
            {"note"} for what was not compared.
        """
        training = {"note": "not compared: --card_duplicates=false"}
        if with_training and self._sets:
            training = _training(settings)
        result = {}
        for name, (own_bytes, own_pixels, names) in self._sets.items():
            others = {"training set": training}
            for other, (their_bytes, their_pixels, _) in self._sets.items():
                if other != name:
                    others[other] = their_bytes, their_pixels
            result[name] = {
                other: hashes
                if isinstance(hashes, dict)
                else _shared(own_bytes, own_pixels, names, *hashes)
                for other, hashes in others.items()
            }
        return result


def _training(settings):
    """(byte hashes, pixel hashes) of the training set, or why there are none."""
    try:
        name, request = settings.dataset.dataset_name, recipe.data_request(settings)
        table = survey(open_listing(name, request), Findings())
    except (OSError, ValueError) as error:
        return {"note": f"not compared: {error}"}
    return table["byte_hash"], table["pixel_hash"]


def _shared(own_bytes, own_pixels, names, their_bytes, their_pixels):
    same_bytes = np.isin(own_bytes, their_bytes) & (own_bytes != 0)
    same_pixels = np.isin(own_pixels, their_pixels) & (own_pixels != 0)
    rows = np.flatnonzero(same_bytes | same_pixels)[:_FIRST].tolist()
    return {
        "pictures": len(their_bytes),
        "same_bytes": int(same_bytes.sum()),
        "same_pixels": int(same_pixels.sum()),
        "first": [names[row] if names else f"picture {row}" for row in rows],
    }
