"""Determines the number of classes: the user's, or the data's if none is given."""

from absl import logging

from plsc_tf.data import load as data_load
from plsc_tf.options.settings import Settings


def to_request(settings: Settings) -> int | None:
    """Returns the number of classes to request of the data set; None if it decides.

    The default of num_classes describes PLSC's data set. It is requested only for mock
    data, and for record files whose module does not define the number.
    """
    dataset = settings.dataset
    if "num_classes" in settings.given or dataset.dataset_name == "mock":
        return dataset.num_classes
    if not dataset.train_files:
        return None
    # Records do not store the number of classes, but the data set's module may know it.
    module = data_load.find(dataset.dataset_name)
    return None if data_load.info(module).num_classes else dataset.num_classes


def from_data(settings: Settings, batches) -> Settings:
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


def check(settings, source, *, opened, training):
    """Checks that the head will have the same number of classes as the data.

    Args:
        settings: the `Settings`.
        source: the `Source` of the data.
        opened: True if the source was opened by the name of its data set, with the
            number of classes from `to_request`; False if it was made in Python and has
            its own number.
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
    empty = getattr(source, "empty_folders", ())
    if empty:
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
    module = data_load.find(settings.dataset.dataset_name)
    return max(
        source.label_range[1] + 1,
        len(getattr(source, "class_names", ())),
        data_load.info(module).num_classes or 0,
    )
