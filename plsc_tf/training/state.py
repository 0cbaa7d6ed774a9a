"""What a checkpoint holds of a `Classifier`, by name."""

from plsc_tf.checkpoints import folder


def backbone_variables(model):
    """`{name: keras.Variable}` of the backbone's weights, in the order of building.

    Keras's own names count layers over the whole process, so they differ when a
    notebook builds the same network twice.
    """
    return {f"backbone/{i:04d}": v for i, v in enumerate(model.backbone.weights)}


def training_variables(model):
    """`{name: keras.Variable}` of what only a resume needs.

    These are the optimizer's variables, but for a fixed learning rate, which is set
    by the flags of a run, and the random states of layers such as dropout.
    """
    rate = getattr(model.optimizer, "_learning_rate", None)
    weights = {id(weight) for weight in model.backbone.weights}
    random = [v for v in model.backbone.variables if id(v) not in weights]
    return {
        **{
            f"optimizer/{i:04d}": v
            for i, v in enumerate(model.optimizer.variables)
            if v is not rate
        },
        **{f"random/{i:04d}": v for i, v in enumerate(random)},
    }


def head_state(model):
    """`{name: float}` of what a loss carries from step to step, such as AdaFace's."""
    variables = model.head.state_variables
    return {name: float(variable.numpy()) for name, variable in variables.items()}


def save(path, model, state):
    """Writes a checkpoint of the model, its optimizer and its position.

    Args:
        path: the checkpoint folder, which must not exist.
        model: the compiled `Classifier`.
        state: dict of what else a resume needs.
    """
    model.synchronize_statistics()
    position = model.position
    folder.save(
        path,
        variables={**backbone_variables(model), **training_variables(model)},
        arrays={**model.head.arrays(), **model.updater.slots()},
        state={
            **state,
            "epoch": position.epoch,
            "step": position.step,
            "global_step": position.global_step,
            "num_classes": model.head.num_classes,
            "embedding_size": model.embedding_size,
            "optimizer": type(model.optimizer).__name__,
            "loss_scale": model.loss_scale.state() if model.loss_scale else None,
            "head_state": head_state(model),
        },
    )


def restore(path, model):
    """Loads everything of a checkpoint, so that training goes on from there.

    Returns:
        the state dict; `model.position` is set.

    Raises:
        ValueError: the checkpoint is of another network, head or optimizer.
    """
    trained_with = folder.read_manifest(path)["state"].get("optimizer")
    optimizer = type(model.optimizer).__name__
    if trained_with != optimizer:
        raise ValueError(
            f"Checkpoint {path} was trained with the optimizer {trained_with}, whose "
            f"state {optimizer} cannot go on from. Resume with {trained_with}, or "
            "start from the weights only (checkpoint_dir) in another folder."
        )
    state = folder.restore(
        path,
        variables={**backbone_variables(model), **training_variables(model)},
        arrays={**model.head.arrays(), **model.updater.slots()},
    )
    if model.loss_scale is not None and state.get("loss_scale"):
        model.loss_scale.restore(state["loss_scale"])
    # Checkpoints of another loss, or of before there was such a state, have none.
    stored = state.get("head_state", {})
    for name, variable in model.head.state_variables.items():
        if name in stored:
            variable.assign(stored[name])
    position = model.position
    position.epoch, position.step = state["epoch"], state["step"]
    position.global_step = state["global_step"]
    return state


def restore_weights(path, model, with_head=True):
    """Loads the weights only (PLSC: checkpoint_dir); returns the state dict."""
    arrays = model.head.arrays() if with_head else {}
    return folder.restore(path, variables=backbone_variables(model), arrays=arrays)
