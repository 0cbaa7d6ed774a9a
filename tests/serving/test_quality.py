"""The quality of images: in the export, in `embed`, and as a limit of commands."""

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data.alignment import REFERENCE
from plsc_tf.data.images import encode
from plsc_tf.evaluation import lists
from plsc_tf.serving.export import Extras, export_saved_model
from tests import commands, detectors
from tests.serving import tiny

COUNT = 120
NAMES = [f"photos/{k:03d}.png" for k in range(COUNT)]


@pytest.fixture(scope="module", params=[False, True], ids=["as_is", "normalized"])
def exported(request, tmp_path_factory):
    """(folder with exports and a data set, share of images with shorter embeddings)."""
    folder, images = tmp_path_factory.mktemp("quality"), tiny.images(COUNT, seed=3)
    (folder / "photos").mkdir()
    for name, image in zip(NAMES, images, strict=True):
        (folder / name).write_bytes(encode(image))
    (folder / "label.txt").write_text("".join(f"{name} 0\n" for name in NAMES))
    network = tiny.network()
    for name, count in {"face": COUNT, "plain": 99}.items():
        extras = Extras(validation=tuple(map(encode, images[:count])))
        options = {"normalize": request.param, "extras": extras}
        export_saved_model(network, folder / name, **options)
    norms = np.linalg.norm(network(images.astype(np.float32)), axis=1)
    return folder, norms.argsort().argsort() / (COUNT - 1)


def test_the_signature_ranks_images_by_the_validation_set(exported):
    folder, expected = exported
    model = tf.saved_model.load(str(folder / "face" / "1"))
    images = tf.constant([(folder / name).read_bytes() for name in NAMES])
    outputs = model.signatures["quality"](bytes=images)
    found = outputs["quality"].numpy()
    assert list(found.argsort()) == list(expected.argsort())
    np.testing.assert_allclose(found, expected, atol=0.01)
    # What clients know stays as it is.
    served = model.signatures["serving_default"](bytes=images)
    assert list(served) == ["embedding"]
    np.testing.assert_allclose(outputs["embedding"], served["embedding"], atol=1e-5)


def test_embed_writes_the_quality_and_drops_the_worst(exported, tmp_path):
    folder, expected = exported
    words = ["--saved_model=face", "--images=photos", f"--output={tmp_path}/x.npy"]
    words += ["--flip=false", "--min_quality=0.25"]
    done = commands.run("embed", *words, folder=folder)
    names, found = np.loadtxt(tmp_path / "x.txt", str, delimiter="\t").T
    kept = np.flatnonzero(expected >= 0.25)
    assert [f"photos/{name}" for name in names] == [NAMES[row] for row in kept]
    np.testing.assert_allclose(found.astype(float), expected[kept], atol=0.01)
    assert len(np.load(tmp_path / "x.npy")) == len(kept)
    assert f"dropped, low quality    {COUNT - len(kept)}" in done.out
    read = lists.read_names((tmp_path / "x.txt").read_bytes(), "x.txt")
    assert list(read) == list(names)


def test_check_and_align_drop_images_of_low_quality(exported, tmp_path, monkeypatch):
    folder, expected = exported
    words = ["--dataset_name=image_list", "--dataset_dir=.", "--val_targets="]
    words += ["--saved_model=face", "--min_quality=0.25", "--cleaned_list=good.txt"]
    done = commands.run("check", *words, folder=folder)
    kept = [line.split()[0] for line in (folder / "good.txt").read_text().splitlines()]
    assert kept == [NAMES[row] for row in np.flatnonzero(expected >= 0.25)]
    assert f"low_quality  {COUNT - len(kept)} images of lower quality" in done.out
    monkeypatch.setattr(detectors, "faces", {150: [REFERENCE + 9]})
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.png").write_bytes(encode(np.zeros((150, 150, 3), np.uint8)))
    words = ["--images=in", "--detector=tests.detectors:detect"]
    words += [f"--saved_model={folder}/face", "--min_quality=1", "--output_dir=out"]
    done = commands.run("align", *words, folder=tmp_path)
    assert done.out.splitlines()[-1].split() == ["low", "quality", "1"]
    assert '"quality": 0.' in (tmp_path / "out.jsonl").read_text()


@pytest.mark.parametrize("command", ["embed", "check", "align"])
def test_an_unknown_quality_is_an_error(exported, command, tmp_path):
    words = {
        "check": ["--dataset_name=folder", "--dataset_dir=photos", "--val_targets="],
        "embed": ["--images=photos", f"--output={tmp_path}/faces.npy"],
        "align": ["--images=photos", f"--output_dir={tmp_path}/out"],
    }[command]
    words.append("--min_quality=0.1")
    plain = commands.run(command, *words, "--saved_model=plain", folder=exported[0])
    assert plain.status and "does not know the quality of images" in plain.err
    without = commands.run(command, *words, folder=exported[0])
    assert without.status and "Only an export knows the quality" in without.err
    assert not list(tmp_path.iterdir())
