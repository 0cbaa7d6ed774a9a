"""The export of a trained run: its settings and its data decide what it contains."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.jobs import export
from plsc_tf.jobs.builders import data
from plsc_tf.jobs.evaluate import command
from plsc_tf.options.settings import Settings
from tests.jobs.tiny_run import TINY
from tests.serving.tiny import read


@pytest.fixture(scope="module")
def run(finished_run, tmp_path_factory):
    """(settings, folder) of a copy of a finished run and its card."""
    folder = tmp_path_factory.mktemp("export")
    shutil.copytree(finished_run.folder, folder / "run")
    settings = Settings.from_values(checkpoint_dir=str(folder / "run"), num_replicas=2)
    options = {"card_dir": str(folder / "card"), "card_far": 0.1, "proof_pairs": 60}
    command.evaluate(settings.replace(**options))
    return settings, folder


def test_the_end_of_a_training_exports_its_model(finished_run):
    export_dir = finished_run.outcome["export_dir"]
    assert "threshold" not in read(export_dir, "model_card.json")
    proof = read(export_dir, "proof.json")
    assert (proof["pictures"], proof["basis"]) == (32, "images")


def test_everything_at_once(run):
    settings, folder = run
    rows = export.export_checkpoint(
        settings.replace(
            card=str(folder / "card" / "card.json"),
            export_formats=("saved_model", "tflite_int8"),
            export_classes=2,
            calibration_images=10,
            proof_pairs=20,
            accuracy_loss=0.2,
        )
    )
    target = dict(rows)["SavedModel"]
    assert pathlib.Path(target).name == "2"
    by_name = {row["artefact"]: row for row in read(target, "proof.json")["artefacts"]}
    parts = {"serving_default", "images", "tflite_int8", "classify", "quality"}
    assert set(by_name) == parts
    assert by_name["images"]["verification"]["mock"]["change"] == 0
    assert "mock" in dict(rows)["proof: tflite_int8"]
    card = read(target, "model_card.json")
    written = json.loads((folder / "card" / "card.json").read_text())
    assert card["threshold"]["cosine"] == written["sets"]["mock"]["threshold"]["cosine"]
    assert card["threshold"]["far"] == 0.1
    signature = tf.saved_model.load(target).signatures["classify"]
    image = tf.io.encode_png(np.zeros([20, 30, 3], np.uint8))
    assert signature(bytes=image[None])["classes"].shape == (1, 2)


def test_the_card_of_another_checkpoint_is_refused(run, tmp_path):
    settings, folder = run
    content = json.loads((folder / "card" / "card.json").read_text())
    options = {"card": "card.json", "export_dir": "export"}
    asked = settings.replace(**{k: str(tmp_path / v) for k, v in options.items()})
    # Other values of the manifest may be those of another network.
    other = content["model"] | {"manifest_sha256": "0" * 64}
    for model, received in ((other, "0000"), ({"weights_sha256": "1"}, "1"), ({}, "N")):
        (tmp_path / "card.json").write_text(json.dumps({**content, "model": model}))
        told = f"must describe the exported model, .*Received: .*_sha256={received}"
        with pytest.raises(ValueError, match=told):
            export.export_checkpoint(asked)
    # With the same checkpoint, the card may still be that of another model.
    options = content["options"] | {"ema_in_use": False}
    (tmp_path / "card.json").write_text(json.dumps({**content, "options": options}))
    with pytest.raises(ValueError, match="has ema_in_use=False.*ema_in_use=True"):
        export.export_checkpoint(asked)
    assert not (tmp_path / "export").exists()


@pytest.fixture
def written(finished_run, monkeypatch):
    """The `Extras` of exports, which are not written."""
    extras = []

    def note(*_, **arguments):
        extras.append(arguments["extras"])
        return finished_run.outcome["export_dir"]

    monkeypatch.setattr(export, "export_saved_model", note)
    return extras


def test_without_verification_sets_noise_is_proof(run, written, tmp_path, monkeypatch):
    settings, _ = run

    def fail(*_, **__):
        raise FileNotFoundError("gone")

    monkeypatch.setattr(data, "load_pairs", fail)
    settings = settings.replace(export_dir=str(tmp_path))
    export.export_checkpoint(settings)
    assert written[-1].pictures == ()
    # Sets that are named must be there.
    with pytest.raises(FileNotFoundError, match="gone"):
        export.export_checkpoint(
            Settings.from_values(
                checkpoint_dir=settings.checkpoints.checkpoint_dir,
                num_replicas=2,
                export_dir=str(tmp_path),
                val_targets=("cfp",),
            )
        )


def test_a_classifier_is_proved_on_its_test_split(run, written, tmp_path):
    settings, folder = run
    # A run from elsewhere may lack all other results.
    path = folder / "run/results.json"
    results = json.loads(path.read_text())
    path.write_text(json.dumps({"checkpoint_dir": results["checkpoint_dir"]}))
    settings = settings.replace(export_dir=str(tmp_path), val_targets=("test",))
    export.export_checkpoint(settings)
    assert len(written[-1].pictures) == 32
    path.write_text(json.dumps(results))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"export_classes": 8}, "at most num_classes=7. Received: export_classes=8"),
        ({"export_formats": ("onnx",)}, "must contain saved_model"),
    ],
)
def test_a_training_finds_early_whatever_would_stop_its_export(options, message):
    settings = Settings.from_values(**{**TINY, "export_at_end": True, **options})
    with pytest.raises(ValueError, match=message):
        export.check(settings)
    export.check(settings.replace(export_at_end=False))
