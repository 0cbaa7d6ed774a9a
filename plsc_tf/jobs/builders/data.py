"""Builds the data of a run from the settings: its request, preprocessing and batches.

The number of classes is the user's, or the data's if none is given.
"""

import dataclasses
from collections.abc import Collection

from absl import logging

from plsc_tf.data import load as data_load, preprocessing
from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers.layouts import DataRequest
from plsc_tf.evaluation.verification import FOLDS
from plsc_tf.jobs.parts import TEST_SPLIT
from plsc_tf.options.settings import Settings
from plsc_tf.requirements import require


def data_request(settings, split="train", **changes) -> DataRequest:
    """Returns the request for a split of the data set that the settings name.

    Args:
        settings: the `Settings`.
        split: "train", "val" or "test".
        **changes: fields of `DataRequest` that differ from those of a training.
    """
    fields = _options_of(DataRequest, settings)
    fields |= {"split": split, "num_classes": _classes_to_request(settings)}
    fields["num_examples"] = settings.dataset.num_sample_per_epoch
    fields["image_size"] = settings.preprocessing.image_size
    if split != "train":
        fields["train_files"] = ()
    return DataRequest(**fields | changes)


def _options_of(kind, settings):
    """Returns `{field: option of the same name}` for a dataclass."""
    values, fields = settings.as_dict(), dataclasses.fields(kind)
    return {one.name: values[one.name] for one in fields if one.name in values}


def open_source(settings, split="train"):
    """Opens a split of the data set that the settings name, as a `Source`."""
    name = settings.dataset.dataset_name
    return data_load.open_source(name, data_request(settings, split))


def load_batches(settings, batch_size, split="train", source=None, shuffle=False):
    """Opens a split of the data as global batches.

    Args:
        settings: the `Settings`.
        batch_size: number of images in a global batch.
        split: "train", or "test" to frame the images as in evaluation.
        source: a `Source` that replaces the data set, or None.
        shuffle: whether to shuffle the images of other splits than "train", too.

    Raises:
        ValueError: num_classes does not match the data.
        StorageError: the URL scheme of dataset_dir is not supported here.
    """
    given, fields = settings.preprocessing, _options_of(PipelineOptions, settings)
    training = split == "train"
    if training:
        fields["use_caching"] = given.datasets_use_caching
        fields["cache_dir"] = given.datasets_cache_dir
    else:
        fields |= {"skip_bad_records": False, "sampling": "uniform"}
    fields |= {"training": training, "shuffle": training or shuffle}
    options = PipelineOptions(**fields | preprocessing_options(settings))
    opened = source is None
    if opened:
        source = open_source(settings, split)
    if opened or training:
        _check_classes(settings, source, opened=opened, training=training)
    batches = Batches(source, batch_size, options=options)
    count = batches.num_examples or settings.dataset.num_sample_per_epoch
    if training and count < batches.batch_size:
        size, name = batches.batch_size, settings.dataset.dataset_name
        logging.warning(
            f"The global batch has {size} images, but the data set '{name}' has {count}"
            f", so each step adds padding. Lower batch_size (global_batch_size)."
        )
    return batches


def load_test(settings):
    """Opens the data set's test split; returns None if val_targets does not name it."""
    evaluation = settings.evaluation
    if not evaluation.with_test or TEST_SPLIT not in evaluation.val_targets:
        return None
    return load_batches(settings, evaluation.test_batch_size, split=TEST_SPLIT)


def load_pairs(settings, given=None):
    """Loads the verification sets, with the run's framing: `{name: Pairs}`.

    Args:
        settings: the `Settings`.
        given: `{name: Pairs}` that replaces val_targets, or None.

    Raises:
        ValueError: a set has fewer pairs than folds.
    """
    if not settings.evaluation.with_test:
        return {}
    pairs, frame = dict(given or {}), framing(settings)
    for target in settings.evaluation.val_targets if given is None else ():
        if target != TEST_SPLIT:
            name = settings.dataset.dataset_name
            loaded = data_load.load_val(name, data_request(settings), target)
            pairs[free_name(loaded.name, pairs)] = loaded
    for name, one in pairs.items():
        rule = f"Verification needs at least {FOLDS} pairs, one for each fold"
        require(len(one) >= FOLDS, rule, name=name, pairs=len(one))
        most = settings.server.max_megapixels
        pairs[name] = dataclasses.replace(one.framed(frame), max_megapixels=most)
    return pairs


def free_name(name: str, taken: Collection[str]) -> str:
    """Returns a set's name, with the first free number after it if it is taken."""
    names = [name, *(f"{name} {number}" for number in range(2, len(taken) + 2))]
    return next(one for one in names if one not in taken)


def _classes_to_request(settings) -> int | None:
    """Returns the number of classes to request of the data set; None if it decides.

    The default of num_classes describes PLSC's data set. It is requested only for mock
    data, and for record files whose module does not define the number.
    """
    dataset = settings.dataset
    if "num_classes" in settings.given or dataset.dataset_name == "mock":
        return dataset.num_classes
    # TFRecords do not store it, but the data set's module may know it.
    module = data_load.find(dataset.dataset_name)
    known = data_load.info(dataset.dataset_name)
    records = dataset.train_files and (known.tfrecords or hasattr(module, "parse_fn"))
    return dataset.num_classes if records and not known.num_classes else None


def with_classes(settings: Settings, batches) -> Settings:
    """Returns settings with the data's number of classes, unless the user gave one."""
    name, classes = settings.dataset.dataset_name, batches.num_classes
    if "num_classes" in settings.given:
        return settings
    if classes is None:
        default = settings.dataset.num_classes
        message = "The data does not give num_classes: using the default, %d."
        logging.warning(message, default)
        return settings
    logging.info(f"num_classes is not set: using the {classes} classes of '{name}'.")
    return settings.replace(num_classes=classes)


def _check_classes(settings, source, *, opened, training):
    """Checks that the head will have the same number of classes as the data.

    Args:
        settings: the `Settings`.
        source: the `Source` of the data.
        opened: True if the source was opened by the name of its data set, with the
            number of classes from `_classes_to_request`; False if it was made in Python
            and has its own number.
        training: whether the source is training data; other splits may lack classes.

    Raises:
        ValueError: the data has a different number of classes, or a class is empty.
    """
    name = settings.dataset.dataset_name if opened else source.name
    known, classes = source.num_classes, settings.dataset.num_classes
    given = "num_classes" in settings.given

    def differ(number):
        text = f"num_classes={classes}, but the data set '{name}' has {number} classes."
        return f"{text} Set --num_classes={number}."

    if known is not None and known > classes and (given or not training):
        raise ValueError(differ(known))
    folders = len(getattr(source, "class_names", ())) or classes
    rule = "A test split of class folders needs an image of each class of the training"
    advice = "Otherwise use a list, label_test.txt, or set --allow_empty_classes"
    same = training or folders == classes or settings.dataset.allow_empty_classes
    require(same, rule, advice, folders=folders, num_classes=classes)
    if not training or settings.dataset.allow_empty_classes:
        return
    allow = "To train anyway, set --allow_empty_classes."
    found = _classes_in_files(settings, source) if opened else known
    # `held_back` may have taken all images of the first class folder, so a smallest
    # label of 1 is an error only if there are no class folders.
    first = 0 if hasattr(source, "class_names") else (source.label_range or (0,))[0]
    if first == 1:
        last, advice = source.label_range[1], "Subtract 1 from them."
        if opened:
            offset = settings.dataset.labels_offset + 1
            advice = f"Set --labels_offset={offset} to get {last} classes."
        raise ValueError(
            f"The labels of {source.name} are 1...{last}, so class 0 has no images. "
            f"{advice} {allow}"
        )
    if empty := getattr(source, "empty_folders", ()):
        raise ValueError(
            f"{len(empty)} of {len(empty) + found} class folders of '{name}' have no "
            f"images: {', '.join(sorted(empty)[:3])}. Add images, or remove these "
            f"folders to train {found} classes. {allow}"
        )
    if given and found is not None and found < classes:
        raise ValueError(f"{differ(found)} {allow}")


def _classes_in_files(settings, source):
    """Returns the number of classes found in the data itself, None if unknown."""
    if settings.dataset.dataset_name == "mock" or source.label_range is None:
        return None  # generated on request, or known only after reading all records
    return max(
        source.label_range[1] + 1,
        len(getattr(source, "class_names", ())),
        data_load.info(settings.dataset.dataset_name).num_classes or 0,
    )


def preprocessing_options(settings) -> dict:
    """Returns the fields of `PipelineOptions` that the preprocessing options describe.

    Args:
        settings: the `Settings` of the run.

    Returns:
        {"image_size", "preprocessing", "augmentation"}.
    """
    name, given = preprocessing_name(settings), settings.preprocessing
    changed = _changed(preprocessing.own_augmentation(name) or Augmentation(), given)
    chosen = {"preprocessing": name, "augmentation": changed}
    return {"image_size": given.image_size, **chosen}


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
    return name or data_load.info(settings.dataset.dataset_name).augmentation


def _changed(base, given):
    """Returns the preprocessing's augmentation as changed by the options, or None."""
    names = {field.name for field in dataclasses.fields(base)}
    # An option has the name of a field of `Augmentation`, or this name after random_.
    options = {name.removeprefix("random_"): v for name, v in vars(given).items()}
    fields = {name: v for name, v in options.items() if name in names and v is not None}
    if given.random_flip is not None:
        fields["flip"] = 0.5 if given.random_flip else 0.0
    if (crop := given.random_resized_crop) is not None:
        fields["crop_scale"] = (crop, 1.0) if crop < 1 else None
    if "color_jitter" in fields:
        # `color_jitter` replaces the preprocessing's own color factors.
        fields |= {"contrast": None, "saturation": None, "brightness": 0.0}
    changed = dataclasses.replace(base, **fields)
    return None if changed == Augmentation() else changed
