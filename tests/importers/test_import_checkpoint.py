"""The command: from another library's files to a checkpoint that embeds alike."""

import os

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.backbones import blocks, faces
from plsc_tf.jobs import import_checkpoint, trained
from plsc_tf.options.settings import Settings
from tests.importers.paddle_writer import write_checkpoint
from tests.importers.theirs import ArcfaceTorch, Plsc

CLASSES, SIZE = 7, 6
SHAPE = (16, 32)
# Depths and widths of ResNet50 here; test_parameter_counts.py has the real ones.
RESNET50 = (1, 2, 1, 1), (64, 8, 8, 8)
WEIGHT = np.random.default_rng(1).normal(size=(CLASSES, SIZE)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def small_resnet50():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(faces.PLSC_DEPTHS, 50, RESNET50[0])
        patch.setitem(faces.PLSC_VARIANTS, "v0.2", (blocks.basic_block, RESNET50[1]))
        yield


@pytest.fixture(scope="module")
def plsc(tmp_path_factory):
    """(folder of a PLSC 0.1 checkpoint, images, their embeddings there)."""
    folder = tmp_path_factory.mktemp("plsc")
    network = Plsc()
    # Layers are numbered from 3 if the program created other layers before.
    network.counts.update(conv2d=3, batch_norm=3, prelu=3, fc=3)
    images = np.random.default_rng(8).integers(0, 256, (2, *SHAPE, 3)).astype(np.uint8)
    embeddings = network.embed(images, *RESNET50, SIZE)
    write_checkpoint(folder, network.weights, (WEIGHT[:3], WEIGHT[3:6], WEIGHT[6:]))
    return folder, images, embeddings


def settings(folder, **values):
    network = {"model_name": "ResNet50", "emb_size": SIZE, "image_shape": (3, *SHAPE)}
    return Settings.from_values(import_from=str(folder), **{**network, **values})


def test_a_plsc_checkpoint_embeds_and_classifies_as_there(plsc, tmp_path):
    folder, images, embeddings = plsc
    asked = settings(folder, model_save_dir=str(tmp_path / "run"))
    rows = dict(import_checkpoint.import_checkpoint(asked))
    assert rows["format"] == "plsc"
    assert rows["head: weight"] == "7 x 6, from 3 rank(s)"
    assert rows["skipped"].count("_velocity_0") == len(rows["skipped"].split())
    # Evaluation and export find the network by the checkpoint alone.
    given = Settings.from_values(checkpoint_dir=str(tmp_path / "run"), num_replicas=1)
    found = trained.load(given, with_head=True)
    assert found.checkpoint == rows["checkpoint"]
    np.testing.assert_allclose(
        found.model.embed(images), embeddings, atol=1e-5 * np.abs(embeddings).max()
    )
    np.testing.assert_array_equal(found.model.head.weights_as_numpy(), WEIGHT)
    again = plsc_tf.load_model(found.checkpoint)
    np.testing.assert_allclose(again.embed(images), embeddings, rtol=1e-3)
    keras.backend.clear_session()


@pytest.fixture
def arcface_torch(tmp_path, torch):
    """(options that import a small arcface_torch training, images, embeddings)."""
    network, shape = ArcfaceTorch(), (12, 8)
    images = np.random.default_rng(9).integers(0, 256, (3, *shape, 3)).astype(np.uint8)
    embeddings = network.embed(images, (2, 1), (4, 8), SIZE)
    state = {name: torch.from_dlpack(array) for name, array in network.weights.items()}
    folder = tmp_path / "theirs"
    folder.mkdir()
    torch.save(state, folder / "backbone.pth")
    for rank, rows in enumerate((WEIGHT[:4], WEIGHT[4:])):
        name = f"softmax_fc_gpu_{rank}.pt"
        torch.save({"weight": torch.from_dlpack(rows)}, folder / name)
    options = {
        "import_from": str(folder),
        "model_name": "iresnet",
        "model_options": "depths=2-1,width=4",
        "emb_size": SIZE,
        "image_shape": (3, *shape),
        "num_classes": CLASSES,
        "checkpoint_dir": str(tmp_path / "ours"),
    }
    return options, images, embeddings


def test_an_arcface_torch_training_embeds_and_classifies_as_there(arcface_torch):
    options, images, embeddings = arcface_torch
    rows = import_checkpoint.import_checkpoint(Settings.from_values(**options))
    assert dict(rows)["checkpoint"] == options["checkpoint_dir"]
    given = {"checkpoint_dir": options["checkpoint_dir"], "num_replicas": 2}
    found = trained.load(Settings.from_values(**given), with_head=True)
    np.testing.assert_allclose(found.model.embed(images), embeddings, atol=2e-5)
    np.testing.assert_array_equal(found.model.head.weights_as_numpy(), WEIGHT)


@pytest.mark.parametrize("asked", [None, 8])
def test_a_number_of_classes_that_no_file_tells_must_be_given(arcface_torch, asked):
    options, _, _ = arcface_torch
    options["num_classes"] = asked or Settings().dataset.num_classes
    with pytest.raises(ValueError, match="Pass --num_classes=7. If there should"):
        import_checkpoint.import_checkpoint(Settings.from_values(**options))
    assert not os.path.exists(options["checkpoint_dir"])


def test_a_backbone_alone_makes_a_checkpoint_without_a_head(arcface_torch):
    options, images, embeddings = arcface_torch
    options["import_from"] += "/backbone.pth"
    rows = import_checkpoint.import_checkpoint(Settings.from_values(**options))
    assert dict(rows)["head"].startswith("none")
    given = {"checkpoint_dir": options["checkpoint_dir"], "num_replicas": 1}
    found = trained.load(Settings.from_values(**given))
    np.testing.assert_allclose(found.model.embed(images), embeddings, atol=2e-5)
    with pytest.raises(ValueError, match="weight: not in the checkpoint"):
        trained.load(Settings.from_values(**given, num_classes=CLASSES), with_head=True)


def test_nothing_is_overwritten(plsc, tmp_path):
    taken = tmp_path / "there"
    taken.mkdir()
    asked = settings(plsc[0], checkpoint_dir=str(taken))
    with pytest.raises(FileExistsError, match="is not overwritten"):
        import_checkpoint.import_checkpoint(asked)
    assert os.listdir(taken) == []


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"num_classes": 8}, "num_classes=8"),
        ({"emb_size": 5}, "emb_size=5"),
        ({"loss_type": "dist_softmax"}, "has no bias"),
        ({"model_name": "lenet"}, "does not contain the weights of 'lenet'"),
        ({"import_from": ""}, "Set import_from to"),
    ],
)
def test_what_does_not_fit_leaves_nothing_behind(plsc, tmp_path, values, problem):
    given = settings(plsc[0], checkpoint_dir=str(tmp_path / "new"))
    given = Settings.build({**given.as_dict(), **values}, {"model_name", *values})
    with pytest.raises((ValueError, FileNotFoundError), match=problem):
        import_checkpoint.import_checkpoint(given)
    assert os.listdir(tmp_path) == []
