"""Every layout to every other keeps all bytes and labels."""

import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from plsc_tf.data.conversion import run
from plsc_tf.data.conversion.inputs import FilesInput, SourceInput
from plsc_tf.data.readers import base64_text, tfrecord
from plsc_tf.data.readers.formats import FORMATS
from plsc_tf.data.readers.python import from_dataset, from_generator
from tests.conversion import drawn

EXAMPLES = drawn.images(50)
LAYOUTS = ("tfrecord", "base64")


def inputs(layout, folder, examples=EXAMPLES):
    if layout in LAYOUTS:
        return FilesInput(FORMATS[layout], drawn.write(layout, folder, examples))
    source = from_generator(lambda: iter(examples), num_examples=len(examples))
    return SourceInput(source, {})


def converted(source, folder, layout, **options):
    options = {"output_format": layout, "num_shards": 4, "seed": 3, **options}
    manifest, already = run.convert(source, run.ConversionPlan(str(folder), **options))
    assert not already
    return manifest


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("origin", [*LAYOUTS, "source"])
def test_bytes_and_labels_are_kept(tmp_path, origin, target, shuffle):
    source = inputs(origin, tmp_path / "in")
    before = drawn.digests(tmp_path)
    converted(source, tmp_path / "out", target, shuffle=shuffle)
    found = drawn.read(tmp_path / "out", target)
    if shuffle:
        assert found != EXAMPLES
        assert sorted(found) == sorted(EXAMPLES)
    else:
        assert found == EXAMPLES
    assert before.items() <= drawn.digests(tmp_path).items()
    assert {path.name for path in tmp_path.iterdir()} <= {"in", "out"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reader_takes_the_index(tmp_path, layout):
    converted(inputs("source", None), tmp_path / "out", layout)
    open_files, pattern = {
        "tfrecord": (tfrecord.tfrecords, "*.tfrecord"),
        "base64": (base64_text.base64_files, "base64_rank_?"),
    }[layout]
    source = open_files(sorted(str(path) for path in (tmp_path / "out").glob(pattern)))
    found = drawn.read(tmp_path / "out", layout)
    assert source.labels.tolist() == [label for _, label in found]
    assert [(r.image, r.label) for r in source.records()] == found


@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("origin", LAYOUTS)
def test_labels_are_shifted(tmp_path, origin, target):
    raised = [(image, label + 1) for image, label in EXAMPLES]
    source = inputs(origin, tmp_path / "in", raised)
    shifted = FilesInput(source.form, source.paths, labels_offset=1, num_classes=7)
    converted(shifted, tmp_path / "out", target, shuffle=False)
    assert drawn.read(tmp_path / "out", target) == EXAMPLES


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_become_pngs_of_the_same_pixels(tmp_path, layout):
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (4, 5 + k % 2, 1), np.uint8) for k in range(10)]
    source = from_generator(lambda: ((p, 1) for p in pictures), num_examples=10)
    converted(SourceInput(source, {}), tmp_path / "out", layout, shuffle=False)
    written = (io.BytesIO(image) for image, _ in drawn.read(tmp_path / "out", layout))
    found = [np.array(Image.open(file)) for file in written]
    assert all((a == b[..., 0]).all() for a, b in zip(found, pictures, strict=True))


def test_an_image_that_cannot_be_converted_is_named_once(tmp_path):
    pictures = np.zeros((20, 4, 5, 3), np.float32)
    pictures[17] = np.nan
    dataset = tf.data.Dataset.from_tensor_slices((pictures, np.zeros(20, int)))
    source = SourceInput(from_dataset(dataset, name="faces"), {})
    with pytest.raises(ValueError, match="^faces must .* at example 17"):
        converted(source, tmp_path / "out", "tfrecord")


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_manifest_adds_up(tmp_path, shuffle):
    source = inputs("base64", tmp_path / "in")
    converted(source, tmp_path / "out", "base64", num_shards=7, shuffle=shuffle)
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    digests = drawn.digests(tmp_path / "out")
    digests.pop("manifest.json")
    assert {k: v["sha256"] for k, v in manifest["files"].items()} == digests
    for shard in manifest["shards"]:
        assert shard["sha256"] == digests[shard["name"]]
        assert shard["bytes"] == (tmp_path / "out" / shard["name"]).stat().st_size
    assert [shard["count"] for shard in manifest["shards"]] == [8] + [7] * 6
    assert (manifest["num_examples"], manifest["padding"]) == (50, 0)
