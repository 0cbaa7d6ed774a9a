"""Arguments of Keras that have another place here, or none."""

_FIT = {
    "validation_split": "hold pictures back and give them as validation_data",
    "validation_batch_size": "give validation_data as a tf.data.Dataset of batches",
    "workers": "what plsc_tf.load returns has workers of its own",
    "use_multiprocessing": "what plsc_tf.load returns has workers of its own",
    "max_queue_size": "what plsc_tf.load returns has a queue of its own",
}
_COMPILE = {
    "loss": "the head has it: plsc_tf.ShardedHead(classes, margins=plsc_tf.ARCFACE)",
    "loss_weights": "there is one loss, the head's",
    "run_eagerly": "steps are always graphs; tf.print works within them",
    "jit_compile": "what gains from XLA in a head is compiled always",
    "auto_scale_loss": "a model in mixed_float16 gets a dynamic loss scale; "
    "loss_scale=plsc_tf.LossScale(1, dynamic=False) is none",
}
_HINTS = {"fit": _FIT, "compile": _COMPILE}


def names_of_metrics(given, known):
    """The names of metrics that `compile` is given: a name, some of them, or None.

    Args:
        given: as of Keras's `compile`.
        known: names that there are.

    Raises:
        ValueError: one is unknown, or no name.
    """
    names = [given] if isinstance(given, str) else list(given or ())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"metrics may hold {sorted(known)}; others cannot be computed without "
            f"gathering the logits. Received: {unknown}"
        )
    return names


def refuse(method, given, allowed=()):
    """Raises TypeError for arguments that a method does not have, and says what to do.

    Args:
        method: "fit" or "compile".
        given: their names.
        allowed: names that are all right.
    """
    for name in given:
        if name not in allowed:
            hint = _HINTS[method].get(name, "its docstring tells what it takes")
            raise TypeError(f"Classifier.{method} has no argument {name!r}: {hint}.")


def check_own(gradient_accumulation_steps, head_slot_dtype):
    """Checks arguments of `compile` that Keras does not have.

    Raises:
        ValueError: one is out of range.
    """
    if gradient_accumulation_steps < 1:
        raise ValueError(
            "gradient_accumulation_steps must be at least 1. Received: "
            f"gradient_accumulation_steps={gradient_accumulation_steps}"
        )
    if head_slot_dtype not in (None, "float32", "bfloat16"):
        raise ValueError(
            'head_slot_dtype must be "float32" or "bfloat16". Received: '
            f"head_slot_dtype={head_slot_dtype!r}"
        )
