"""Saves the state of a `Classifier` in checkpoints and restores it."""

import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.checkpoints import manifest, reader, writer
from plsc_tf.parallel.strategy import gather, local_replicas
from plsc_tf.requirements import require
from plsc_tf.training import model_config, weight_rules
from plsc_tf.training.average import SLOT
from plsc_tf.training.circular import Classifier
from plsc_tf.training.feed import Position

# Advice in errors for continuing with another optimizer.
WEIGHTS_ALONE = (
    "load only the weights: call Checkpoint.restore(model) before model.compile, or "
    "plsc_tf.load_model; on the command line, set checkpoint_dir and another "
    "model_save_dir"
)


def training_variables(model: Classifier) -> dict[str, keras.Variable]:
    """Returns `{name: keras.Variable}` of the variables that only a resume needs.

    These are the optimizer's variables, the random states of layers such as dropout,
    the branches that only training needs, and the averages of the weights. A fixed
    learning rate is not included, as it is set by the run's options. The variables are
    numbered because Keras's names depend on the other layers created in the process.
    """
    rate = getattr(model.optimizer, "_learning_rate", None)
    weights = {id(weight) for weight in model.backbone.weights}
    random = [v for v in model.backbone.variables if id(v) not in weights]
    auxiliary = [v for branch in model.networks()[1:] for v in branch.variables]
    means = model.trainer.updater.means
    groups = {"optimizer": model.optimizer.variables, "random": random}
    groups |= {"auxiliary": auxiliary, SLOT: means}
    return {
        f"{group}/{i:04d}": variable
        for group, variables in groups.items()
        for i, variable in enumerate(variables)
        if variable is not rate
    }


def _places(model, with_head=True):
    """Returns `{place: weight}`; a place is the backbone weight's number or "head n".

    Checkpoints store the places to identify the weights' averages.
    """
    weights: dict = dict(enumerate(model.backbone.weights))
    if with_head and not model.head.sharded:
        of_head = enumerate(model.head.variables_replicated)
        weights |= {f"head {i}": weight for i, weight in of_head}
    return weights


def head_state(model: Classifier) -> dict[str, float]:
    """Returns `{name: float}`, the loss function's state, such as AdaFace's means."""
    variables = model.head.state_variables
    return {name: float(variable.numpy()) for name, variable in variables.items()}


def snapshot(
    model: Classifier, state: dict, *, weights_only: bool = False, held: bool = True
) -> writer.Content:
    """Takes a snapshot of the model, its optimizer and its position.

    Args:
        model: the `Classifier`, compiled unless weights_only.
        state: dict of further data to store.
        weights_only: omits data that only a resume needs.
        held: preserve the current class rows while training continues, see
            `plsc_tf.checkpoints.writer`. If False, the rows are read when they are
            written; this needs no extra memory, but training must wait.

    Returns:
        a `Content`.
    """
    stacked = stacked_statistics(model) if model.trainer.statistics_differ else []
    averaged = {id(v): tf.constant(np.mean(each, axis=0)) for v, each in stacked}
    values = [
        (v, averaged[id(v)] if id(v) in averaged else _value(model, v))
        for v in model.backbone.variables
    ]
    arrays, training = dict(model.head.arrays()), None
    if not weights_only:
        arrays.update(model.trainer.updater.slots())
        variables = training_variables(model)
        variables = {name: _value(model, v) for name, v in variables.items()}
        for i, (_, each) in enumerate(stacked):
            variables[f"statistics/{i:04d}"] = each
        training = writer.variables_file(variables)
    arrays = {k: v.held() if held else v.stored() for k, v in arrays.items()}
    state = {**state, **_position(model, weights_only)}
    backbone = writer.backbone_file(model.backbone, values)
    return writer.Content(state, backbone, arrays, training, held)


def _position(model, weights_only):
    position = dict(vars(model.trainer.position))
    described = {
        "epoch_sums": position.pop("sums"),
        **position,
        "num_classes": model.head.num_classes,
        "embedding_size": model.embedding_size,
        "head_state": head_state(model),
        **model_config.describe(model.backbone, model.head),
    }
    if not weights_only:
        described["optimizer"] = type(model.optimizer).__name__
        if averages := model.trainer.updater.averages:
            # None for a weight in a branch for training.
            places = {id(weight): place for place, weight in _places(model).items()}
            described["averages"] = [places.get(id(w)) for w in averages.replicated]
            described["averages_in_use"] = averages.averaging.in_use
        described["replicas"] = model.strategy.num_replicas_in_sync
        described["loss_scale"] = model.loss_scale.state() if model.loss_scale else None
    return described


def _value(model, variable):
    """Returns a variable's value; for a mirrored variable, the first replica's."""
    return tf.convert_to_tensor(copies(model, variable)[0])


def save(path: str, model: Classifier, state: dict, **options) -> None:
    """Writes a checkpoint to a folder that must not exist; arguments of `snapshot`."""
    writer.save(path, snapshot(model, state, held=False, **options))


def restore(path: str, model: Classifier, *, verified: bool = False) -> dict:
    """Loads a complete checkpoint to resume training; sets `model.trainer.position`.

    Args:
        path: the checkpoint folder.
        model: the compiled `Classifier`, on any number of replicas.
        verified: True if all files of the checkpoint have just been verified.

    Returns:
        the checkpoint's state dict.

    Raises:
        ValueError: the checkpoint has another network, head or optimizer.
    """
    content = manifest.read(path)
    _check_optimizer(path, content, model)
    state = reader.restore(
        path,
        network=model.backbone,
        variables=_as_stored(content, model),
        arrays={**model.head.arrays(), **model.trainer.updater.slots()},
        verified=verified,
    )
    _restore_statistics(path, content, model)
    if model.loss_scale is not None and state.get("loss_scale"):
        model.loss_scale.restore(state["loss_scale"])
    restore_head_state(model, state)
    place = {name: state.get(name, 0) for name in ("epoch", "step", "global_step")}
    # Older checkpoints have no sums.
    model.trainer.position.go_to(Position(**place, sums=state.get("epoch_sums", {})))
    return state


def _check_optimizer(path, content, model):
    if content["kind"] != "training":
        return  # `reader.restore` raises the error
    trained_with = content["state"].get("optimizer")
    optimizer = type(model.optimizer).__name__
    rule = f"Checkpoint {path} was trained with the optimizer {trained_with}"
    advice = f"Resume with {trained_with}, or {WEIGHTS_ALONE}"
    require(trained_with == optimizer, rule, advice, optimizer=optimizer)
    before = "averages" in content["state"]
    now = model.trainer.updater.averages is not None
    if before and not now:
        logging.warning(
            "Checkpoint %s has averages of the weights, but this run drops them: "
            "without ema_decay, verification and export use the weights themselves.",
            path,
        )
    rule = f"Checkpoint {path} has no averages of the weights, which ema_decay needs"
    require(before or not now, rule, f"Resume without ema_decay, or {WEIGHTS_ALONE}")


def _as_stored(content, model):
    """Returns `training_variables` under their names in a checkpoint.

    The numbers of the optimizer's variables have a gap for a fixed learning rate, but
    not for a schedule, so they may differ between the model and the checkpoint.
    """
    variables = training_variables(model)
    stored, current = (
        sorted(name for name in names if name.startswith("optimizer/"))
        for names in (content["training"].get("variables", ()), variables)
    )
    if len(stored) == len(current):
        values = [variables.pop(name) for name in current]
        variables |= dict(zip(stored, values, strict=True))
    return variables


def _restore_statistics(path, content, model):
    """Restores each replica's own statistics if the number of replicas is the same.

    Otherwise all replicas keep the mean, which was loaded with the weights.
    """
    described = content["training"]["variables"]
    replicas = model.strategy.num_replicas_in_sync
    variables = dict(enumerate(statistics(model)))
    shapes = {f"statistics/{i:04d}": [replicas, *v.shape] for i, v in variables.items()}
    model.trainer.statistics_differ = False
    fit = all(described.get(n, {}).get("shape") == shapes[n] for n in shapes)
    if not shapes or not fit:
        return
    values = reader.read_variables(path, content, shapes)
    here = local_replicas(model.strategy)
    for i, variable in variables.items():
        local = values[f"statistics/{i:04d}"][here.start : here.stop]
        for copy, value in zip(copies(model, variable), local, strict=True):
            copy.assign(value)
    model.trainer.statistics_differ = True


def restore_head_state(model: Classifier, state: dict) -> None:
    """Restores the loss function's state from a checkpoint's state dict."""
    # Checkpoints with another loss do not have these values.
    stored = state.get("head_state", {})
    for name, variable in model.head.state_variables.items():
        if name in stored:
            variable.assign(stored[name])


def restore_weights(path: str, model: Classifier, with_head: bool = True) -> dict:
    """Loads the weights only (PLSC: checkpoint_dir); returns the state dict."""
    arrays = model.head.arrays() if with_head else {}
    state = reader.restore(path, network=model.backbone, arrays=arrays)
    model.trainer.statistics_differ = False
    return state


def restore_averages(path: str, model: Classifier, with_head: bool = False) -> None:
    """Replaces the weights with their averages if a checkpoint has them.

    A checkpoint of weights only has no separate averages: if averages were in use, its
    weights are the averages.

    Args:
        path: the checkpoint folder, from which the weights were loaded.
        model: the `Classifier`.
        with_head: also replace the class weights.
    """
    content = manifest.read(path)
    places = content["state"].get("averages")
    if content["kind"] != "training" or not places:
        return
    targets = _places(model, with_head)
    known = [(i, place) for i, place in enumerate(places) if place in targets]
    wanted = {f"{SLOT}/{i:04d}": targets[place] for i, place in known}
    arrays = {}
    if with_head and model.head.sharded:
        rows = model.head.arrays().items()
        arrays = {f"{name}/{SLOT}": array for name, array in rows}
    reader.restore(path, variables=wanted, arrays=arrays)


def synchronize(model: Classifier) -> None:
    """Sets all replicas' statistics to their mean.

    See `Classifier.synchronize_statistics`.
    """
    trainer, replicas = model.trainer, model.strategy.num_replicas_in_sync
    if not trainer.statistics_differ or replicas == 1:
        return
    for variable, each in stacked_statistics(model):
        variable.assign(np.mean(each, axis=0))
    trainer.statistics_differ = False


def statistics(model: Classifier) -> list[keras.Variable]:
    """Returns the backbone's batch-norm statistics, which differ between replicas."""
    weights = model.backbone.non_trainable_weights
    floats = [v for v in weights if v.value.dtype.is_floating]
    return [v for v in floats if not weight_rules.is_frozen(v)]


def copies(model: Classifier, variable: keras.Variable) -> Sequence[tf.Variable]:
    """Returns this process's per-replica `tf.Variable`s of a Keras variable."""
    return model.strategy.experimental_local_results(variable.value)


def stacked_statistics(model: Classifier) -> list[tuple[keras.Variable, np.ndarray]]:
    """Gathers all replicas' statistics: `[(variable, [replicas, ...])]`.

    All workers must call it.
    """
    if not (differing := statistics(model)):
        return []
    rows = zip(*[copies(model, variable) for variable in differing], strict=True)
    # Gather them in one message, because latency dominates the transfer time.
    flat = [np.concatenate([one.numpy().ravel() for one in row])[None] for row in rows]
    ends = np.cumsum([math.prod(variable.shape) for variable in differing])
    parts = np.split(gather(model.strategy, flat), ends[:-1], axis=1)
    pairs = zip(differing, parts, strict=True)
    return [(one, values.reshape(-1, *one.shape)) for one, values in pairs]
