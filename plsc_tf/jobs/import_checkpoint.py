"""Converts another library's checkpoint to a plsc_tf checkpoint."""

import functools
import os

from plsc_tf.checkpoints import catalog, importers, writer
from plsc_tf.jobs import origins
from plsc_tf.jobs.builders import heads, recipe
from plsc_tf.requirements import require
from plsc_tf.storage import files, outputs
from plsc_tf.storage.writer_lock import WriterLock
from plsc_tf.training import model_config

# The import goes into this subfolder of model_save_dir: a checkpoint at step 0.
FOLDER = "step_00000000"


def import_checkpoint(settings):
    """Reads another library's checkpoint and writes a plsc_tf checkpoint.

    Args:
        settings: the `Settings`. The group `importing` selects the input,
            `checkpoints` the output folder, and the options of the network describe
            the imported network.

    Returns:
        The rows of a table of the imported and omitted contents.

    Raises:
        FileExistsError: a checkpoint already exists.
        FileNotFoundError: a part of the input checkpoint is missing.
        FolderInUseError: a training run is writing to model_save_dir.
        ValueError: the checkpoint does not match the settings; nothing was written.
    """
    options = settings.importing
    rule = "Set import_from to the folder or file of a checkpoint"
    require(options.import_from, rule, import_from="''")
    path, origin = _target(settings.checkpoints), _origin(settings)
    source = importers.read(options.import_from)
    if "model_name" not in settings.given:
        network = importers.network(source)
        settings = settings.merged(network, network)
    settings = _completed(recipe.complete(settings), source)
    make = functools.partial(recipe.build_backbone, settings)
    backbone, folded = importers.build(source, make)
    with WriterLock("Wait until it ends, or set checkpoint_dir.") as lock:
        if not settings.checkpoints.checkpoint_dir:
            lock.acquire(settings.checkpoints.model_save_dir)
            _target(settings.checkpoints)  # check again, now that the lock is held
        writer.save(path, _content(settings, source, backbone, origin))
    rows = _table(settings, source, backbone, path)
    if folded:
        advice = "without statistics: to train, set --freeze_layers='.*bn'"
        rows.append(("folded", f"{len(folded)} batch normalizations {advice}"))
    return rows


def _target(storage):
    """Returns the path of the new checkpoint; raises FileExistsError if it exists."""
    if storage.checkpoint_dir:
        path = storage.checkpoint_dir.rstrip("/")
    else:
        path = files.join(storage.model_save_dir, FOLDER)
        rule = f"model_save_dir={storage.model_save_dir!r} already contains checkpoints"
        advice = "Choose another folder, or set checkpoint_dir"
        found = catalog.find_all(storage.model_save_dir)
        require(not found, rule, advice, raises=FileExistsError)
    outputs.require_absent(path)
    return path


def _completed(settings, source):
    """Returns the settings with the checkpoint's number of classes and kind of head."""
    weight = source.arrays.get("weight")
    if weight is None:
        return settings
    classes, size = weight.shape
    origin, requested = settings.importing.import_from, settings.dataset.num_classes
    known, advice = source.num_classes is not None, f"Pass --num_classes={classes}"
    if not known:
        advice += ". If there should be more, the last rank's file is missing"
    fits = requested == classes or (known and "num_classes" not in settings.given)
    rule = f"{origin} contains {classes} classes in {source.ranks} rank file(s)"
    require(fits, rule, advice, num_classes=requested)
    rule, wanted = f"The embedding size of {origin} is {size}", settings.model.emb_size
    require(size == wanted, rule, f"Set emb_size={size}", emb_size=wanted)
    loss, has_bias = settings.head.loss_type, "bias" in source.arrays
    if has_bias != (settings.head.loss == "softmax"):
        free = has_bias and "loss_type" not in settings.given
        word = "a" if has_bias else "no"
        rule = f"The head in {origin} has {word} bias, and only softmax heads have one"
        require(free, rule, loss_type=loss)
        loss = source.loss if source.loss == "softmax" else "dist_softmax"
    return settings.replace(num_classes=classes, loss_type=loss)


def _origin(settings):
    """Returns the stated origin of the model, with the SHA-256 of a single file.

    Raises:
        ValueError: the file or its license is not as required.
    """
    path = settings.importing.import_from
    stated = origins.read_statement(path, settings.provenance)
    is_one = os.path.isfile(path) and len(importers.files_of(path)[1]) == 1
    rule = f"{path} must be a single file for its SHA-256 to be compared"
    require(is_one or "sha256" not in stated, rule, "Leave it out")
    if is_one:
        sha256 = files.checksum(path, "sha256")["sha256"]
        rule = f"{path} must have the SHA-256 that is stated, not {sha256}"
        wanted = stated.setdefault("sha256", sha256)
        require(wanted.lower() == sha256, rule, sha256=wanted)
    origin = {"kind": "model", "name": files.name(path), **stated}
    origins.checked_facts(settings, [origin])
    return origin


def _content(settings, source, backbone, origin):
    """Returns the content of the new checkpoint."""
    # checkpoint_dir names the output here, not a checkpoint to start from.
    flags = settings.replace(checkpoint_dir="").as_dict()
    path = os.path.abspath(settings.importing.import_from)
    state = {
        "step": 0,
        "global_step": 0,
        "num_classes": settings.dataset.num_classes,
        "embedding_size": settings.model.emb_size,
        "head_state": {},
        **model_config.describe(backbone, heads.make_head(settings)),
        "flags": flags,
        "origins": [origin],
        "imported": {"format": source.format, "from": path},
    }
    return writer.Content(state, writer.backbone_file(backbone), source.arrays)


def _table(settings, source, backbone, path):
    size = f"{backbone.count_params():,} weights in {len(source.backbone)} arrays"
    rows = [("format", source.format), ("read", settings.importing.import_from)]
    rows.append(("backbone", f"{settings.model.model_name}: {size}"))
    for name, array in source.arrays.items():
        shape = " x ".join(f"{size:,}" for size in array.shape)
        rows.append((f"head: {name}", f"{shape}, from {source.ranks} rank(s)"))
    if not source.arrays:
        rows.append(("head", "none; train with --task_type=finetune to create one"))
    skipped = "\n".join(source.left) or "nothing"
    return [*rows, ("skipped", skipped), ("checkpoint", path)]
