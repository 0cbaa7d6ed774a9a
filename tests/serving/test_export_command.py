"""The export of a trained run: what comes from its settings and its data."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data import load as data_load
from plsc_tf.jobs import export, train
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.evaluate import command
from plsc_tf.options.settings import Settings

TINY = dict(
    dataset_name="mock",
    num_classes=12,
    num_sample_per_epoch=24,
    image_shape=(3, 16, 16),
    num_replicas=2,
    batch_size=6,
    model_name="iresnet",
    model_options="depths=1-1,width=4,head=gap",
    emb_size=8,
    num_epochs=1,
    val_targets=("mock",),
    preprocessing_name="vgg",
)


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """Settings of a run that has ended, its export and its card."""
    folder = tmp_path_factory.mktemp("export")
    settings = Settings.from_values(
        **TINY, model_save_dir=str(folder / "run"), proof_pairs=0
    )
    _, outcome = train.train(settings)
    command.evaluate(
        settings.replace(card_dir=str(folder / "card"), card_far=0.1, proof_pairs=60)
    )
    return settings, outcome, folder


def read(folder, name):
    return json.loads(pathlib.Path(folder, "assets.extra", name).read_text())


def test_the_end_of_a_training_exports_what_it_saw(trained_run):
    _, outcome, _ = trained_run
    card = read(outcome["export_dir"], "model_card.json")
    assert card["preprocessing"] == "vgg"
    assert "threshold" not in card
    proof = read(outcome["export_dir"], "proof.json")
    assert (proof["pictures"], proof["basis"]) == (32, "pictures")
    assert "verification" not in proof["artefacts"][1]


def test_everything_at_once(trained_run, capsys):
    settings, outcome, folder = trained_run
    names = [f"0\t{k}\tperson {k}" for k in range(12)]
    beside = pathlib.Path(outcome["checkpoint_dir"]).parent / "labels_map.txt"
    beside.write_text("\n".join([*names, "5\t-\tgone"]))
    rows = export.export_checkpoint(
        settings.replace(
            card=str(folder / "card" / "card.json"),
            export_formats=("saved_model", "tflite_int8"),
            export_classes=2,
            calibration_images=10,
            proof_pairs=60,
            accuracy_loss=0.2,
            int8_cosine=0.9,
        )
    )
    target = dict(rows)["SavedModel"]
    assert pathlib.Path(target).name == "2"
    proof = read(target, "proof.json")["artefacts"]
    by_name = {row["artefact"]: row for row in proof}
    assert set(by_name) == {"serving_default", "images", "tflite_int8", "classify"}
    assert by_name["images"]["verification"]["mock"]["change"] == 0
    assert "mock" in dict(rows)["proof: tflite_int8"]
    told = read(target, "model_card.json")
    written = json.loads((folder / "card" / "card.json").read_text())
    threshold = written["sets"]["mock"]["threshold"]
    assert told["threshold"]["cosine"] == threshold["cosine"]
    assert told["threshold"]["far"] == 0.1
    lines = pathlib.Path(target, "assets.extra/classes.txt").read_text().splitlines()
    assert lines == [f"person {k}" for k in range(12)]
    signature = tf.saved_model.load(target).signatures["classify"]
    picture = tf.io.encode_png(np.zeros([20, 30, 3], np.uint8))
    assert signature(bytes=picture[None])["classes"].shape == (1, 2)


def test_the_card_of_another_checkpoint_is_refused(trained_run, tmp_path):
    settings, _, folder = trained_run
    content = json.loads((folder / "card" / "card.json").read_text())
    content["model"]["weights_sha256"] = "0" * 64
    (tmp_path / "card.json").write_text(json.dumps(content))
    before = sorted(pathlib.Path(folder, "run", "export").iterdir())
    with pytest.raises(ValueError, match="must be of the exported model"):
        export.export_checkpoint(settings.replace(card=str(tmp_path / "card.json")))
    assert sorted(pathlib.Path(folder, "run", "export").iterdir()) == before


def test_without_the_verification_sets_the_proof_is_about_noise(trained_run, tmp_path):
    settings, outcome, _ = trained_run
    shutil.copytree(outcome["checkpoint_dir"], tmp_path / "run" / "0")

    def fail(*_, **__):
        raise FileNotFoundError("gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "load_pairs", fail)
        settings = Settings.from_values(checkpoint_dir=str(tmp_path / "run"))
        rows = dict(export.export_checkpoint(settings))
        with pytest.raises(FileNotFoundError, match="gone"):
            export.export_checkpoint(settings.replace(val_targets=("cfp",)))
        # The default, too, where it was asked for.
        asked = {"checkpoint_dir": str(tmp_path / "run"), "val_targets": ("lfw",)}
        with pytest.raises(FileNotFoundError, match="gone"):
            export.export_checkpoint(Settings.from_values(**asked))
    assert rows["proved on"] == "3 pictures of noise"


def test_a_classifier_is_proved_on_its_test_split(trained_run, tmp_path):
    settings, outcome, _ = trained_run
    shutil.copytree(outcome["checkpoint_dir"], tmp_path / "run" / "0")
    settings = settings.replace(
        checkpoint_dir=str(tmp_path / "run"),
        model_save_dir=str(tmp_path / "run"),
        val_targets=("test",),
        proof_images=5,
    )
    assert dict(export.export_checkpoint(settings))["proved on"] == "5 pictures"


def test_pairs_are_thinned_by_kind(trained_run):
    settings, _, _ = trained_run
    pairs = data_load.load_val("mock", recipe.data_request(settings), "mock")
    some = export._thinned(pairs, 50)
    assert (len(some), int(some.same.sum())) == (50, 25)
    whole = dataclasses.replace(some, left=some.left)
    assert export._thinned(whole, 50) is whole
    listed = {tuple(row) for row in np.stack([pairs.left, pairs.right], 1).tolist()}
    assert {tuple(r) for r in np.stack([some.left, some.right], 1).tolist()} <= listed


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"export_classes": 13}, "at most num_classes=12. Received: export_classes=13"),
        ({"card": "card.json"}, "give it to python -m plsc_tf.export"),
        ({"export_formats": ("onnx",)}, "name saved_model too"),
    ],
)
def test_a_training_finds_early_what_would_stop_its_export(asked, message):
    settings = Settings.from_values(**TINY).replace(**asked)
    with pytest.raises(ValueError, match=message):
        export.check(settings)
    export.check(settings.replace(export_at_end=False))
