"""From flags to preprocessing options, and to batches."""

import logging

import pytest
import tensorflow as tf

from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.preprocessing import own_augmentation
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.builders.preprocessing import preprocessing_options
from plsc_tf.options.settings import Settings


def _options(suitable="face", **flags):
    return preprocessing_options(Settings.from_values(**flags).preprocessing, suitable)


def test_without_flags_the_data_set_decides():
    assert _options() == {
        "image_size": (112, 112),
        "preprocessing": "face",
        "augmentation": Augmentation(flip=0.5),
    }
    assert _options("none")["augmentation"] is None


@pytest.mark.parametrize("name", ["face", "vgg", "inception", "cifarnet", "lenet"])
def test_a_name_brings_its_own_changes(name):
    options = _options("none", preprocessing_name=name)
    assert options["preprocessing"] == name
    assert options["augmentation"] == own_augmentation(name)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"random_flip": False}, "flip", 0.0),
        ({"random_rotate": 10}, "rotate", 10.0),
        ({"random_resized_crop": 0.08}, "crop_scale", (0.08, 1.0)),
        ({"random_hue": 0.1}, "hue", 0.1),
        ({"cutout": 0.3}, "cutout", 0.3),
        ({"random_erasing": 0.5}, "erasing", 0.5),
        ({"low_resolution": 0.2}, "low_resolution", 0.2),
        ({"crop_in_place": 0.2}, "crop_in_place", 0.2),
        ({"randaugment_layers": 2}, "randaugment_layers", 2),
        ({"color_probability": 0.2}, "color_probability", 0.2),
    ],
)
def test_a_flag_replaces_what_it_names_and_nothing_else(flags, field, value):
    changed = _options(preprocessing_name="inception", **flags)["augmentation"]
    own = own_augmentation("inception")
    assert getattr(changed, field) == value
    for name in own.__dataclass_fields__:
        assert name == field or getattr(changed, name) == getattr(own, name)


def test_what_a_preprocessing_does_can_be_switched_off():
    changed = _options(
        preprocessing_name="inception",
        random_flip=False,
        random_resized_crop=1,
        color_jitter=0,
        random_hue=0,
    )
    assert changed["augmentation"] is None


@pytest.mark.parametrize(
    ("split", "examples", "warned"),
    [("train", 10, True), ("train", 128, False), ("test", 10, False)],
)
def test_a_batch_that_the_data_do_not_fill_is_told(split, examples, warned, caplog):
    asked = Settings.from_values(
        dataset_name="mock",
        num_classes=5,
        num_sample_per_epoch=examples,
        image_shape=(3, 8, 8),
    )
    with caplog.at_level(logging.WARNING, logger="absl"):
        recipe.load_batches(asked, 128, split=split)
    words = "128 images, and the data set 'mock' only 10. Every step computes 118 more"
    assert (words in caplog.text) == warned
    assert ("Lower batch_size" in caplog.text) == warned


def test_the_test_split_is_not_read_from_the_files_to_train_on():
    settings = Settings.from_values(train_files=("part-0.tfrecord",))
    assert recipe.data_request(settings).train_files == ("part-0.tfrecord",)
    assert recipe.data_request(settings, "test").train_files == ()


@pytest.mark.parametrize("given", [None, 12])
def test_records_have_the_classes_of_their_data_set(tmp_path, given):
    with tf.io.TFRecordWriter(str(tmp_path / "part-0")) as writer:
        writer.write(b"not read before training")
    flags = {} if given is None else {"num_classes": given}
    asked = {"dataset_dir": str(tmp_path), "train_files": ("part-0",), **flags}

    def load(name):
        return recipe.load_batches(Settings.from_values(dataset_name=name, **asked), 1)

    classes = given or 85_742
    assert load("ms1m").num_classes == load("image_list").num_classes == classes
    assert load("cifar10").num_classes == (given or 10)
