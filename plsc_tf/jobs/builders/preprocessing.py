"""Builds the preprocessing of images for training and evaluation from the options."""

import dataclasses

from plsc_tf.data import load as data_load
from plsc_tf.data import preprocessing
from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.preprocessing import own_augmentation

# Options that set the field of `Augmentation` with the same name, less "random_".
_FLAGS = (
    *("random_rotate", "random_shift", "random_zoom", "random_shear", "random_hue"),
    *("random_grey", "random_erasing", "color_jitter", "cutout", "low_resolution"),
    *("crop_in_place", "randaugment_layers", "randaugment_magnitude"),
    *("rotate_probability", "crop_probability", "color_probability"),
    "cutout_probability",
)


def preprocessing_options(given, suitable: str = "face") -> dict:
    """Returns the fields of `PipelineOptions` that the preprocessing options describe.

    Args:
        given: the group `settings.preprocessing`.
        suitable: name of the data set's own preprocessing, used if preprocessing_name
            is None.

    Returns:
        {"image_size", "preprocessing", "augmentation"}.
    """
    name = given.preprocessing_name or suitable
    own = own_augmentation(name) or Augmentation()
    return {
        "image_size": given.image_size,
        "preprocessing": name,
        "augmentation": _changed(own, given),
    }


def framing(settings) -> preprocessing.Preprocessing:
    """Returns the preprocessing of a run, without augmentation.

    Verification, test splits, embeddings and the export frame images with its
    `evaluate`.

    Args:
        settings: the `Settings` of the run.

    Raises:
        ValueError: preprocessing_name is None and the data set is unknown.
    """
    name, size = preprocessing_name(settings), settings.preprocessing.image_size
    return preprocessing.build(name, size, augmentation=None)


def preprocessing_name(settings) -> str:
    """Returns preprocessing_name, or the data set's own preprocessing if it is None."""
    name = settings.preprocessing.preprocessing_name
    if name is not None:
        return name
    return data_load.suitable_preprocessing(
        data_load.find(settings.dataset.dataset_name)
    )


def _changed(own, given):
    """Returns the preprocessing's augmentation as changed by the options, or None."""
    fields = {
        flag.removeprefix("random_"): getattr(given, flag)
        for flag in _FLAGS
        if getattr(given, flag) is not None
    }
    if given.random_flip is not None:
        fields["flip"] = 0.5 if given.random_flip else 0.0
    crop = given.random_resized_crop
    if crop is not None:
        fields["crop_scale"] = (crop, 1.0) if crop < 1 else None
    if "color_jitter" in fields:
        # `color_jitter` replaces the preprocessing's own color factors.
        fields |= {"contrast": None, "saturation": None, "brightness": 0.0}
    changed = dataclasses.replace(own, **fields)
    return None if changed == Augmentation() else changed
