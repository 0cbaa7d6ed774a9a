"""From flags to preprocessing options."""

import pytest

from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.preprocessing import own_augmentation
from plsc_tf.settings import Settings
from plsc_tf.training.input_recipe import preprocessing_options


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
