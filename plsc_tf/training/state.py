"""What a checkpoint holds of a `Classifier`, by name."""

from plsc_tf.checkpoints import folder


def backbone_variables(model):
    """`{name: keras.Variable}` of the backbone, in the order it was built.

    Keras's own names count layers over the whole process, so they differ when a
    notebook builds the same network twice.
    """
    return {f"backbone/{i:04d}": v for i, v in enumerate(model.backbone.weights)}


def optimizer_variables(model):
    """`{name: keras.Variable}` of the optimizer, but for a fixed learning rate.

    The rate of a run is set by its flags; Keras keeps it in a variable only when it
    is no schedule.
    """
    rate = getattr(model.optimizer, "_learning_rate", None)
    return {
        f"optimizer/{i:04d}": v
        for i, v in enumerate(model.optimizer.variables)
        if v is not rate
    }


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
        variables={**backbone_variables(model), **optimizer_variables(model)},
        arrays={**model.head.arrays(), **model.updater.slots()},
        state={
            "epoch": position.epoch,
            "step": position.step,
            "global_step": position.global_step,
            "num_classes": model.head.num_classes,
            "embedding_size": model.embedding_size,
            **state,
        },
    )


def restore(path, model):
    """Loads everything of a checkpoint, so that training goes on from there.

    Returns:
        the state dict; `model.position` is set.
    """
    state = folder.restore(
        path,
        variables={**backbone_variables(model), **optimizer_variables(model)},
        arrays={**model.head.arrays(), **model.updater.slots()},
    )
    position = model.position
    position.epoch, position.step = state["epoch"], state["step"]
    position.global_step = state["global_step"]
    return state


def restore_weights(path, model, with_head=True):
    """Loads the weights only (PLSC: checkpoint_dir); returns the state dict."""
    arrays = model.head.arrays() if with_head else {}
    return folder.restore(path, variables=backbone_variables(model), arrays=arrays)
