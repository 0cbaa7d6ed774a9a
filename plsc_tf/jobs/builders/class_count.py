"""The number of classes of a training: the user's, or else the data's own."""

from absl import logging

from plsc_tf.data import load as data_load
from plsc_tf.options.settings import Settings


def asked(settings: Settings) -> int | None:
    """The number of classes to hand to the data set; None: the data decides.

    The default of num_classes is of PLSC's data set, not of this one.
    """
    dataset = settings.dataset
    if "num_classes" in settings.given or dataset.dataset_name == "mock":
        return dataset.num_classes
    if not dataset.train_files:
        return None
    # Records do not say how many classes there are, but their module may.
    module = data_load.find(dataset.dataset_name)
    return None if data_load.info(module).num_classes else dataset.num_classes


def settled(settings: Settings, batches) -> Settings:
    """The settings with the data's number of classes, unless the user gave one."""
    name, classes = settings.dataset.dataset_name, batches.num_classes
    if "num_classes" in settings.given:
        return settings
    if classes is None:
        default = settings.dataset.num_classes
        logging.warning("num_classes is unknown: taking the default, %d.", default)
        return settings
    text = "num_classes was not given: %d, the classes of the data set '%s'."
    logging.info(text, classes, name)
    return settings.replace(num_classes=classes)


def check(settings, source, *, opened, training):
    """Checks that the head will have as many classes as the data.

    Args:
        settings: the `Settings`.
        source: the `Source` of the data.
        opened: whether the source was opened by name, with the classes of `asked`;
            one that was made in Python says itself how many it has.
        training: whether it is trained on; another split may lack classes.

    Raises:
        ValueError: the data has another number of classes, or a class is empty.
    """
    name = settings.dataset.dataset_name if opened else source.name
    known = source.num_classes
    given = "num_classes" in settings.given
    classes = settings.dataset.num_classes
    if known is not None and known > classes and (given or not training):
        raise ValueError(
            f"num_classes={classes}, but the data set '{name}' has {known} classes "
            f"(labels 0...{known - 1}). Pass --num_classes={known}."
        )
    if not training or settings.dataset.allow_empty_classes:
        return
    allow = "If you mean it, pass --allow_empty_classes."
    own = _own_classes(settings, source) if opened else known
    # With class folders, the first one may have lost its images to `held_back`.
    first = 0 if hasattr(source, "class_names") else (source.label_range or (0,))[0]
    if first == 1:
        last, advice = source.label_range[1], "Subtract 1 from them."
        if opened:
            offset = settings.dataset.labels_offset + 1
            advice = f"Pass --labels_offset={offset}; there are {last} classes then."
        raise ValueError(
            f"The labels of {source.name} are 1...{last}, so that class 0 would get no "
            f"image. {advice} {allow}"
        )
    empty = getattr(source, "empty_folders", ())
    if empty:
        raise ValueError(
            f"{len(empty)} of {len(empty) + own} class folders of '{name}' hold no "
            f"image: {', '.join(sorted(empty)[:3])}. Without them there are {own} "
            f"classes. Fill or remove them. {allow}"
        )
    if given and own is not None and own < classes:
        raise ValueError(
            f"num_classes={classes}, but the data set '{name}' has {own} classes: the "
            f"others would get no image. Pass --num_classes={own}. {allow}"
        )


def _own_classes(settings, source):
    """The number of classes that the data itself has, None if unknown."""
    if settings.dataset.dataset_name == "mock" or source.label_range is None:
        return None  # drawn as requested, or only known to the records
    module = data_load.find(settings.dataset.dataset_name)
    return max(
        source.label_range[1] + 1,
        len(getattr(source, "class_names", ())),
        data_load.info(module).num_classes or 0,
    )
