"""Starts a new training from the weights of another one (PLSC: checkpoint_dir)."""

from absl import logging

from plsc_tf.checkpoints import catalog, manifest, reader
from plsc_tf.storage import files
from plsc_tf.training import state

# Names that are listed one by one.
LISTED = 10


def load(model, settings):
    """Loads the weights in `checkpoint_dir`; with task_type=finetune those that fit.

    Args:
        model: the `Classifier`.
        settings: the `Settings`.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: it does not fit, or its files are damaged.
    """
    files.prepare(settings.checkpoints.checkpoint_dir)
    path = catalog.resolve(settings.checkpoints.checkpoint_dir)
    content = manifest.read(path)
    if settings.training.task_type == "finetune":
        _load_matching(path, content, model, settings)
        return
    stored = content["state"]["num_classes"]
    if stored != model.head.num_classes:
        raise ValueError(
            f"Checkpoint {path} has {stored} classes. Received: "
            f"num_classes={model.head.num_classes}. --task_type=finetune loads "
            "the weights of the backbone that fit and starts a new head."
        )
    if not content["arrays"]:
        raise ValueError(
            f"Checkpoint {path} is a snapshot of the backbone alone. "
            "--task_type=finetune starts from it with a new head; checkpoints, and "
            "snapshots with dim_reduce_scope=all, hold the class weights too."
        )
    state.restore_weights(path, model)
    logging.info("Starting from the weights of %s.", path)


def _load_matching(path, content, model, settings):
    """The backbone's weights that fit; the head's if its classes are these."""
    matched = reader.load_matching(path, model.backbone)
    model.trainer.statistics_differ = False
    with_head = _same_classes(content["state"], content["arrays"], model, settings)
    if with_head:
        state.restore_head(path, model)
    logging.info(
        "Starting from %s: %d of %d weights of the backbone are loaded; the head is "
        "%s.",
        path,
        len(matched.loaded),
        len(matched.loaded) + len(matched.kept),
        "that of the checkpoint" if with_head else "new",
    )
    _log("Not loaded", [f"{name}: {why}" for name, why in matched.kept.items()])
    _log("Not used of the checkpoint", matched.unused)


def _same_classes(stored, arrays, model, settings):
    """Whether class n of the checkpoint is class n here."""
    flags = stored.get("flags", {})
    return (
        flags.get("dataset_name") == settings.dataset.dataset_name
        and flags.get("dataset_dir") == settings.dataset.dataset_dir
        and stored["num_classes"] == model.head.num_classes
        and stored["embedding_size"] == model.embedding_size
        and bool(arrays)
        and tuple(arrays["weight"]["shape"]) == model.head.arrays()["weight"].shape
    )


def _log(what, names):
    if names:
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        logging.info("%s: %s%s", what, "; ".join(names[:LISTED]), more)
