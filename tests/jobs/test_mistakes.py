"""Mistakes are told before a run writes anything."""

import pytest

from plsc_tf.jobs import train
from tests.jobs.tiny_run import settings


def test_a_batch_that_cannot_be_cut_is_told_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="gradient_accumulation_steps=6, with 10"):
        train.train(settings(tmp_path / "d", gradient_accumulation_steps=6))
    assert not (tmp_path / "d").exists()


def test_a_file_in_the_folders_place_is_told(tmp_path):
    (tmp_path / "notes").write_text("mine")
    for folder in ("notes", "notes/run"):
        with pytest.raises(ValueError, match="model_save_dir=.*notes is a file"):
            train.train(settings(tmp_path / folder))
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"val_targets": ("lfw",), "with_test": True}, "--with_test=false"),
        ({"model_name": "resnet5"}, "resnet50"),
        ({"dataset_name": "mok"}, "mock"),
        ({"num_epochs": 1, "warmup_epochs": 1.0}, "Lower warmup_epochs"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(tmp_path, changes, complaint):
    folder = tmp_path / "d"
    with pytest.raises((ValueError, FileNotFoundError), match=complaint):
        train.train(settings(folder, **changes))
    assert not folder.exists()
