"""The number of classes of a training: the user's, or else the data's own."""

from absl import logging

from plsc_tf.data import load as data_load


def asked(settings):
    """The number of classes to hand to the data set; None lets the data say.

    The default of num_classes is PLSC's data set's, not the user's word on this one.
    """
    dataset = settings.dataset
    if "num_classes" in settings.given:
        return dataset.num_classes
    countable = dataset.dataset_name != "mock"
    if dataset.train_files:
        # Records do not say how many classes there are, but their module may.
        module = data_load.find(dataset.dataset_name)
        countable = data_load.info(module).num_classes
    return None if countable else dataset.num_classes


def settled(settings, batches):
    """The settings with the data's number of classes, unless the user gave one."""
    if "num_classes" in settings.given:
        return settings
    name, classes = settings.dataset.dataset_name, batches.num_classes
    if classes is None:
        logging.warning(
            "num_classes was not given, and the data do not say how many classes there "
            "are: the default, %d.",
            settings.dataset.num_classes,
        )
        return settings
    logging.info(
        "num_classes was not given: %d, the classes of the data set '%s'.",
        classes,
        name,
    )
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
    if source.label_range is not None and source.label_range[0] == 1:
        _refuse_first_label(settings, source, opened, allow)
    empty = getattr(source, "empty_folders", ())
    if empty:
        raise ValueError(
            f"{len(empty)} of {len(empty) + own} class folders of '{name}' hold no "
            f"image: {', '.join(sorted(empty)[:3])}. They are left out, and the others "
            f"numbered without gaps: {own} classes. Fill or remove them. {allow}"
        )
    if given and own is not None and own < classes:
        raise ValueError(
            f"num_classes={classes}, but the data set '{name}' has {own} classes: the "
            f"others would get no image. Pass --num_classes={own}. {allow}"
        )


def _own_classes(settings, source):
    """The number of classes that the data itself has, None where it is not known."""
    if settings.dataset.dataset_name == "mock" or source.label_range is None:
        return None  # drawn as asked for, or only known to the records
    module = data_load.find(settings.dataset.dataset_name)
    return max(
        source.label_range[1] + 1,
        len(getattr(source, "class_names", ())),
        data_load.info(module).num_classes or 0,
    )


def _refuse_first_label(settings, source, opened, allow):
    """Raises ValueError where the labels begin at 1, so that class 0 is empty."""
    if hasattr(source, "class_names"):
        return  # The first class folder lost its images to `held_back`.
    last = source.label_range[1]
    advice = "Subtract 1 from them."
    if opened:
        offset = settings.dataset.labels_offset + 1
        advice = f"Pass --labels_offset={offset}; there are {last} classes then."
    raise ValueError(
        f"The labels of {source.name} are 1...{last}, so that class 0 would get no "
        f"image. {advice} {allow}"
    )
