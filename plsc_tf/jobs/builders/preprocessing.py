"""Builds the preprocessing of images for training and evaluation from the options."""

import dataclasses

from plsc_tf.data import load as data_load, preprocessing
from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.preprocessing import own_augmentation


def preprocessing_options(settings) -> dict:
    """Returns the fields of `PipelineOptions` that the preprocessing options describe.

    Args:
        settings: the `Settings` of the run.

    Returns:
        {"image_size", "preprocessing", "augmentation"}.
    """
    name, given = preprocessing_name(settings), settings.preprocessing
    base = own_augmentation(name) or Augmentation()
    return {
        "image_size": given.image_size,
        "preprocessing": name,
        "augmentation": _changed(base, given),
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
    if name:
        return name
    module = data_load.find(settings.dataset.dataset_name)
    return data_load.info(module).augmentation


def _changed(base, given):
    """Returns the preprocessing's augmentation as changed by the options, or None."""
    names = {field.name for field in dataclasses.fields(base)}
    # An option has the name of a field of `Augmentation`, or this name after random_.
    options = {name.removeprefix("random_"): v for name, v in vars(given).items()}
    fields = {name: v for name, v in options.items() if name in names and v is not None}
    if given.random_flip is not None:
        fields["flip"] = 0.5 if given.random_flip else 0.0
    crop = given.random_resized_crop
    if crop is not None:
        fields["crop_scale"] = (crop, 1.0) if crop < 1 else None
    if "color_jitter" in fields:
        # `color_jitter` replaces the preprocessing's own color factors.
        fields |= {"contrast": None, "saturation": None, "brightness": 0.0}
    changed = dataclasses.replace(base, **fields)
    return None if changed == Augmentation() else changed
