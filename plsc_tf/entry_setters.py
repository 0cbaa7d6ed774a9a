"""The setters of PLSC's `Entry`, of 0.1 and 0.2, and the options that they set."""

import functools
import inspect
import os
from collections.abc import Callable

from absl import logging

from plsc_tf import param_attr as attributes
from plsc_tf.flags.head import SYMBOLS

# Setters of one option: the option, and the name of the parameter.
ONE = {
    "set_calc_acc": ("calc_acc", "calc"),
    "set_checkpoint_dir": ("checkpoint_dir", "directory"),
    "set_class_num": ("num_classes", "num"),
    "set_dataset_dir": ("dataset_dir", "directory"),
    "set_emb_size": ("emb_size", "size"),
    "set_image_num": ("num_sample_per_epoch", "num"),  # so in a remark of the manual
    "set_image_shape": ("image_shape", "shape"),
    "set_log_period": ("log_loss_every_n_iters", "steps"),
    "set_lr": ("learning_rate", "rate"),
    "set_lr_decay_factor": ("learning_rate_decay_factor", "factor"),
    "set_lr_steps": (
        "lr_steps",
        "boundaries",
    ),  # PLSC 0.1 has them in its configuration only
    "set_max_last_checkpoint_num": ("keep_checkpoint_max", "num"),
    "set_model_save_dir": ("model_save_dir", "directory"),
    "set_sample_ratio": ("sample_rate", "ratio"),
    "set_step_boundaries": ("lr_steps", "boundaries"),
    "set_test_batch_size": ("test_batch_size", "size"),
    "set_test_period": ("eval_every_n_steps", "steps"),
    "set_train_batch_size": ("batch_size", "size"),
    "set_train_image_num": ("num_sample_per_epoch", "num"),
    "set_val_targets": ("val_targets", "targets"),
    "set_warmup_epochs": ("warmup_epochs", "num"),
    "set_with_test": ("with_test", "with_test"),
}


def set_mixed_precision(  # noqa: PLR0913 - PLSC's signature
    use_fp16,
    init_loss_scaling=None,
    incr_every_n_steps=None,
    decr_every_n_nan_or_inf=None,
    incr_ratio=None,
    decr_ratio=None,
    use_dynamic_loss_scaling=None,
    amp_lists=None,
):
    """Sets half precision and the rule of its loss scale.

    Args:
        use_fp16: whether to train the backbone in float16.
        init_loss_scaling: first loss scale; None, here and below: PLSC's default.
        incr_every_n_steps: finite steps in a row before it grows.
        decr_every_n_nan_or_inf: steps in a row that are not finite before it shrinks.
        incr_ratio: factor by which it grows.
        decr_ratio: factor by which it shrinks.
        use_dynamic_loss_scaling: False keeps the first one.
        amp_lists: layers by name or class, "white:Dense;black:PReLU", or an object
            with the attributes white_list and black_list, like Paddle's.
    """
    if amp_lists is not None and not isinstance(amp_lists, str):
        amp_lists = _amp_lists(amp_lists)
    return {
        "use_fp16": use_fp16,
        "init_loss_scaling": init_loss_scaling,
        "incr_every_n_steps": incr_every_n_steps,
        "decr_every_n_nan_or_inf": decr_every_n_nan_or_inf,
        "incr_ratio": incr_ratio,
        "decr_ratio": decr_ratio,
        "use_dynamic_loss_scaling": use_dynamic_loss_scaling,
        "amp_lists": amp_lists,
    }


def set_hdfs_info(fs_name, fs_ugi, fs_dir_for_save=None, fs_checkpoint_dir=None):
    """Sets a file system to copy checkpoints from before and to after the training.

    Args:
        fs_name: its address, such as "hdfs://namenode:9000".
        fs_ugi: "user,password"; never shown or saved.
        fs_dir_for_save: folder that model_save_dir is copied into.
        fs_checkpoint_dir: folder that is copied into checkpoint_dir.
    """
    return {
        "fs_name": fs_name,
        "fs_ugi": fs_ugi,
        "fs_dir_for_save": fs_dir_for_save,
        "fs_checkpoint_dir": fs_checkpoint_dir,
    }


def set_loss_type(loss_type, m1=None, m2=None, m3=None):
    """Sets the loss, whole on each replica or sharded (dist_).

    Args:
        loss_type: "arcface", "softmax", "dist_softmax", "dist_arcface" (PLSC 0.1);
            0.2's "cosface" and "sphereface", and all that --loss_type takes.
        m1: factor of the angle (PLSC 0.2).
        m2: angle added.
        m3: subtracted from the cosine.
    """
    symbols = {"m1": m1, "m2": m2, "m3": m3}
    margins = {name: symbols[symbol] for name, symbol in SYMBOLS.items()}
    return {"loss_type": loss_type, **margins}


def set_distfc_attr(param_attr=None, bias_attr=None):
    """Sets how the head's weights begin and train, and how its biases begin.

    Args:
        param_attr: None for PLSC's own; a standard deviation; a Keras initializer or
            its name; or a dict or object with the fields of Paddle's ParamAttr:
            initializer, learning_rate (a factor), regularizer (a weight decay or
            `keras.regularizers.L2`), trainable.
        bias_attr: a value, or a constant Keras initializer; None: 0.

    Raises:
        ValueError: they are none of these.
    """
    bias = attributes.of_biases(bias_attr)
    return {**attributes.of_weights(param_attr), "head_initial_bias": bias}


def set_input_info(inputs):
    """Sets the image's shape, from PLSC 0.2's description of the inputs.

    Args:
        inputs: list of dicts with "name" and "shape", of which the one with three
            numbers or four, the first of them the batch, is the image.

    Raises:
        ValueError: none of them is an image.
    """
    for one in inputs if isinstance(inputs, list | tuple) else ():
        shape = one.get("shape") if isinstance(one, dict) else None
        if len(shape or ()) >= 3:
            return {"image_shape": tuple(shape)[-3:]}
    raise ValueError(
        "set_input_info needs a list of dicts, one of them with the shape (channels, "
        f"height, width). Received: {inputs!r}."
    )


def set_use_quant(quant):
    """Accepted; PLSC 0.2 stores it and does not use it."""
    if quant:
        logging.warning(
            "set_use_quant has no effect, as in PLSC. python -m plsc_tf.export writes "
            "quantized models."
        )
    return {}


SEVERAL = (
    *(set_mixed_precision, set_hdfs_info, set_loss_type),
    *(set_distfc_attr, set_input_info, set_use_quant),
)


def _parameters(function):
    return inspect.signature(function).parameters


_HEAD_WEIGHTS = (*attributes.OPTIONS, "head_initial_bias")
# The setter of each option that has one, for messages; the last one counts.
OF_OPTIONS = {
    **{option: name for name, (option, _) in ONE.items() if name != "set_lr_steps"},
    **dict.fromkeys(_parameters(set_mixed_precision), "set_mixed_precision"),
    **dict.fromkeys(_parameters(set_hdfs_info), "set_hdfs_info"),
    **dict.fromkeys(("loss_type", *SYMBOLS), "set_loss_type"),
    **dict.fromkeys(_HEAD_WEIGHTS, "set_distfc_attr"),
    "model_name": "set_model_name",
    "num_epochs": "set_train_epochs",
    "stop_at_step": "set_train_steps",
}


def with_setters(cls: type) -> type:
    """Decorates a class with `_set(**options)`: adds the setters here."""
    for name, (option, parameter) in ONE.items():
        setattr(cls, name, _of_one(name, option, parameter))
    for function in SEVERAL:
        setattr(cls, function.__name__, _of_several(function))
    return cls


def _of_one(name, option, parameter):
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [inspect.Parameter(word, kind) for word in ("self", parameter)]
    )

    def setter(*args, **kwargs):
        entry, value = signature.bind(*args, **kwargs).arguments.values()
        entry._set(**{option: value})

    setter.__signature__ = signature
    setter.__name__, setter.__qualname__ = name, f"Entry.{name}"
    setter.__doc__ = f"Sets the option {option}, see docs/options.md."
    return setter


def _of_several(function: Callable):
    @functools.wraps(function)
    def setter(self, *args, **kwargs):
        options = function(*args, **kwargs)
        self._clear(name for name, value in options.items() if value is None)
        self._set(**{name: v for name, v in options.items() if v is not None})

    return setter


def as_text(value):
    """Returns the text of a `pathlib.Path`; anything else as it is."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _amp_lists(lists):
    if not (hasattr(lists, "white_list") or hasattr(lists, "black_list")):
        raise ValueError(
            'amp_lists must be text such as "white:Dense;black:PReLU", or an object '
            f"with white_list and black_list. Received: {lists!r}."
        )
    parts = []
    for kind in ("white", "black"):
        names = sorted(getattr(lists, f"{kind}_list", None) or ())
        parts += [f"{kind}:{','.join(names)}"] if names else []
    return ";".join(parts)
