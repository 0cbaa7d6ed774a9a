"""What a checkpoint holds of a `Classifier`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.checkpoints import manifest, reader, writer
from plsc_tf.checkpoints.writer import Content
from plsc_tf.parallel.strategy import gather, local_replicas
from plsc_tf.training import freezing, model_config
from plsc_tf.training.average import SLOT
from plsc_tf.training.feed import Position

if TYPE_CHECKING:
    from plsc_tf.training.classifier import Classifier

# The way out for another optimizer, in a sentence.
WEIGHTS_ALONE = (
    "take the weights alone: Checkpoint.restore(model) before model.compile, or "
    "plsc_tf.load_model; on the command line checkpoint_dir and another model_save_dir"
)


def training_variables(model: Classifier) -> dict[str, keras.Variable]:
    """`{name: keras.Variable}` of what only a resume needs.

    These are the optimizer's variables, except a fixed learning rate, which is set
    by the flags of a run, the random states of layers such as dropout, and the
    auxiliary classifier. Keras's names count layers over the whole process, so they
    are numbered instead.
    """
    rate = getattr(model.optimizer, "_learning_rate", None)
    weights = {id(weight) for weight in model.backbone.weights}
    random = [v for v in model.backbone.variables if id(v) not in weights]
    auxiliary = model.auxiliary.branch.variables if model.auxiliary else []
    return {
        **{
            f"optimizer/{i:04d}": v
            for i, v in enumerate(model.optimizer.variables)
            if v is not rate
        },
        **{f"random/{i:04d}": v for i, v in enumerate(random)},
        **{f"auxiliary/{i:04d}": v for i, v in enumerate(auxiliary)},
        **{f"{SLOT}/{i:04d}": v for i, v in enumerate(_averages(model))},
    }


def _averages(model):
    averages = model.trainer.updater.averages
    return [] if averages is None else averages.variables


def _places(model, with_head=True):
    """Weights by the names of their averages: the backbone's number, or "head n"."""
    weights: dict = dict(enumerate(model.backbone.weights))
    if with_head and not model.head.sharded:
        of_head = enumerate(model.head.variables_replicated)
        weights |= {f"head {i}": weight for i, weight in of_head}
    return weights


def _averaged_places(model):
    """Name of each of `_averages`; None in an auxiliary classifier, for training."""
    places = {id(weight): place for place, weight in _places(model).items()}
    averages = model.trainer.updater.averages
    return [places.get(id(weight)) for weight in averages.replicated]


def head_state(model: Classifier) -> dict[str, float]:
    """`{name: float}` of what a loss carries from step to step, such as AdaFace's."""
    variables = model.head.state_variables
    return {name: float(variable.numpy()) for name, variable in variables.items()}


def snapshot(
    model: Classifier, state: dict, *, weights_only: bool = False, held: bool = True
) -> Content:
    """The model, its optimizer and its position as they are now.

    Args:
        model: the `Classifier`, compiled unless weights_only.
        state: dict of what else a resume needs.
        weights_only: leaves out what only a resume needs.
        held: keep the class rows as they are while training continues, see
            `plsc_tf.checkpoints.writer`. Otherwise they are read when they are
            written, which needs no memory, and training has to wait for it.

    Returns:
        a `Content`.
    """
    stacked = stacked_statistics(model) if model.trainer.statistics_differ else {}
    means = mean_statistics(model, stacked) if stacked else []
    averaged = {id(variable): tf.constant(mean) for variable, mean in means}
    values = [
        (v, averaged[id(v)] if id(v) in averaged else _value(model, v))
        for v in model.backbone.variables
    ]
    arrays, variables = dict(model.head.arrays()), {}
    if not weights_only:
        arrays.update(model.trainer.updater.slots())
        variables = {
            name: _value(model, v) for name, v in training_variables(model).items()
        }
        variables.update(stacked)
    if held:
        arrays = {name: array.held() for name, array in arrays.items()}
    return Content(
        kind="weights" if weights_only else "training",
        state={**state, **_position(model, weights_only)},
        network=model.backbone,
        values=values,
        variables=variables,
        arrays=arrays,
    )


def _position(model, weights_only):
    position = dict(vars(model.trainer.position))
    described = {
        "epoch_sums": position.pop("sums"),
        **position,
        "num_classes": model.head.num_classes,
        "embedding_size": model.embedding_size,
        "head_state": head_state(model),
        **model_config.describe(model),
    }
    if not weights_only:
        described["optimizer"] = type(model.optimizer).__name__
        if model.trainer.updater.averages is not None:
            described["averages"] = _averaged_places(model)
        described["replicas"] = model.strategy.num_replicas_in_sync
        described["loss_scale"] = model.loss_scale.state() if model.loss_scale else None
    return described


def _value(model, variable):
    """A variable's value, the first replica's of a mirrored one."""
    local = model.strategy.experimental_local_results(variable.value)
    return tf.convert_to_tensor(local[0])


def save(path: str, model: Classifier, state: dict) -> None:
    """Writes a checkpoint of the model, its optimizer and its position.

    Args:
        path: the checkpoint folder, which must not exist.
        model: the compiled `Classifier`.
        state: dict of what else a resume needs.
    """
    writer.save(path, snapshot(model, state, held=False))


def save_weights(path: str, model: Classifier) -> None:
    """Writes a checkpoint of the weights only, which a training can start from."""
    writer.save(path, snapshot(model, {}, weights_only=True, held=False))


def restore(path: str, model: Classifier, *, verified: bool = False) -> dict:
    """Loads everything of a checkpoint, to resume training.

    Args:
        path: the checkpoint folder.
        model: the compiled `Classifier`, on any number of replicas.
        verified: whether all its files were verified just now.

    Returns:
        the state dict; `model.trainer.position` is set.

    Raises:
        ValueError: the checkpoint is of another network, head or optimizer.
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
    place = {name: state[name] for name in ("epoch", "step", "global_step")}
    # Older checkpoints have no sums.
    model.trainer.position.go_to(Position(**place, sums=state.get("epoch_sums", {})))
    return state


def _check_optimizer(path, content, model):
    if content["kind"] != "training":
        return  # said by `reader.restore`
    trained_with = content["state"].get("optimizer")
    optimizer = type(model.optimizer).__name__
    if trained_with != optimizer:
        raise ValueError(
            f"Checkpoint {path} was trained with the optimizer {trained_with}, whose "
            f"state {optimizer} cannot continue. Resume with {trained_with}, or "
            f"{WEIGHTS_ALONE}."
        )
    before = "averages" in content["state"]
    now = model.trainer.updater.averages is not None
    if before and not now:
        logging.warning(
            "Checkpoint %s has averages of the weights, which end here: without "
            "ema_decay, verification and export are of the weights themselves.",
            path,
        )
    if now and not before:
        raise ValueError(
            f"Checkpoint {path} has no averages of the weights. Resume without "
            "ema_decay, or start from the weights (checkpoint_dir) in another folder."
        )


def _as_stored(content, model):
    """`training_variables` under the names that they have in a checkpoint.

    The variable of a fixed learning rate leaves a gap in the numbers of the
    optimizer's variables, which a schedule does not.
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
    """On as many replicas each gets its statistics back; otherwise all get the mean."""
    names = [name for name in content["training"]["variables"] if "statistics/" in name]
    replicas = model.strategy.num_replicas_in_sync
    model.trainer.statistics_differ = False
    if not names or content["state"]["replicas"] != replicas:
        return
    values = reader.read_variables(path, content, names)
    here = local_replicas(model.strategy)
    for i, variable in enumerate(statistics(model)):
        local = values[f"statistics/{i:04d}"][here.start : here.stop]
        for copy, value in zip(copies(model, variable), local, strict=True):
            copy.assign(value)
    model.trainer.statistics_differ = True


def restore_head_state(model: Classifier, state: dict) -> None:
    """Takes over what a loss carries from step to step; `state` is a state dict."""
    # Checkpoints of another loss have none.
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


def restore_head(path: str, model: Classifier) -> None:
    """Loads the class weights only."""
    restore_head_state(model, reader.restore(path, arrays=model.head.arrays()))


def restore_averages(path: str, model: Classifier, with_head: bool = False) -> bool:
    """Replaces the weights by their averages, where a checkpoint has them.

    Args:
        path: the checkpoint folder, from which the weights were loaded.
        model: the `Classifier`.
        with_head: also the class weights.

    Returns:
        whether there are any. A checkpoint of weights only has those that were in use.
    """
    content = manifest.read(path)
    places = content["state"].get("averages")
    if content["kind"] != "training" or not places:
        return False
    targets = _places(model, with_head)
    wanted = {
        f"{SLOT}/{i:04d}": targets[place]
        for i, place in enumerate(places)
        if place in targets
    }
    arrays = {}
    if with_head and model.head.sharded:
        rows = model.head.arrays().items()
        arrays = {f"{name}/{SLOT}": array for name, array in rows}
    reader.restore(path, variables=wanted, arrays=arrays)
    return True


def synchronize(model: Classifier) -> None:
    """Gives every replica the mean of all; see `Classifier.synchronize_statistics`."""
    trainer, replicas = model.trainer, model.strategy.num_replicas_in_sync
    if not trainer.statistics_differ or replicas == 1:
        return
    for variable, mean in mean_statistics(model, stacked_statistics(model)):
        variable.assign(mean)
    trainer.statistics_differ = False


def statistics(model: Classifier) -> list[keras.Variable]:
    """The backbone's weights that are not trained and that replicas differ in."""
    return [
        variable
        for variable in model.backbone.non_trainable_weights
        if variable.value.dtype.is_floating and not freezing.is_frozen(variable)
    ]


def copies(model: Classifier, variable: keras.Variable) -> Sequence[tf.Variable]:
    """The replicas' values of one of them: list of `tf.Variable`."""
    return model.strategy.experimental_local_results(variable.value)


def stacked_statistics(model: Classifier) -> dict[str, np.ndarray]:
    """Values of all replicas, `{name: [replicas, ...]}`; all workers must call it."""
    differing = statistics(model)
    if not differing:
        return {}
    columns = [copies(model, variable) for variable in differing]
    # In one piece: a message takes longer than what it carries.
    flat = [
        np.concatenate([column[i].numpy().ravel() for column in columns])[None]
        for i in range(len(local_replicas(model.strategy)))
    ]
    gathered, named, start = gather(model.strategy, flat), {}, 0
    for i, variable in enumerate(differing):
        size = int(np.prod(variable.shape))
        values = gathered[:, start : start + size]
        named[f"statistics/{i:04d}"] = values.reshape(-1, *variable.shape)
        start += size
    return named


def mean_statistics(model: Classifier, values: dict[str, np.ndarray]) -> list:
    """What all replicas would agree on: `[(keras.Variable, array)]`.

    Args:
        model: the `Classifier`.
        values: of `stacked_statistics`.
    """
    return [
        (variable, np.mean(values[f"statistics/{i:04d}"], axis=0))
        for i, variable in enumerate(statistics(model))
    ]
