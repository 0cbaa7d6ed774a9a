"""Errors of `Entry` in the words of a script: setters, and no traceback of ours."""

import functools
import os
import re
import sys
import traceback

from plsc_tf.options import cli
from plsc_tf.options.settings import known_options

# The setter of each option that has one.
SETTERS = {
    "amp_lists": "set_mixed_precision",
    "batch_size": "set_train_batch_size",
    "calc_acc": "set_calc_acc",
    "checkpoint_dir": "set_checkpoint_dir",
    "dataset_dir": "set_dataset_dir",
    "decr_every_n_nan_or_inf": "set_mixed_precision",
    "decr_ratio": "set_mixed_precision",
    "emb_size": "set_emb_size",
    "eval_every_n_steps": "set_test_period",
    "fs_checkpoint_dir": "set_hdfs_info",
    "fs_dir_for_save": "set_hdfs_info",
    "fs_name": "set_hdfs_info",
    "fs_ugi": "set_hdfs_info",
    "head_initial_bias": "set_distfc_attr",
    "head_initial_deviation": "set_distfc_attr",
    "head_initializer": "set_distfc_attr",
    "head_learning_rate_factor": "set_distfc_attr",
    "head_weight_decay": "set_distfc_attr",
    "image_shape": "set_image_shape",
    "incr_every_n_steps": "set_mixed_precision",
    "incr_ratio": "set_mixed_precision",
    "init_loss_scaling": "set_mixed_precision",
    "keep_checkpoint_max": "set_max_last_checkpoint_num",
    "learning_rate": "set_lr",
    "learning_rate_decay_factor": "set_lr_decay_factor",
    "log_loss_every_n_iters": "set_log_period",
    "loss_type": "set_loss_type",
    "lr_steps": "set_step_boundaries",
    "margin": "set_loss_type",
    "margin1": "set_loss_type",
    "margin3": "set_loss_type",
    "model_name": "set_model_name",
    "model_save_dir": "set_model_save_dir",
    "num_classes": "set_class_num",
    "num_epochs": "set_train_epochs",
    "num_sample_per_epoch": "set_train_image_num",
    "sample_rate": "set_sample_ratio",
    "stop_at_step": "set_train_steps",
    "test_batch_size": "set_test_batch_size",
    "use_dynamic_loss_scaling": "set_mixed_precision",
    "use_fp16": "set_mixed_precision",
    "val_targets": "set_val_targets",
    "warmup_epochs": "set_warmup_epochs",
    "with_test": "set_with_test",
}
# Setters of several values, of which a flag's is not the first.
_SEVERAL = ("set_distfc_attr", "set_hdfs_info", "set_mixed_precision")
_FLAG = re.compile(r"(Pass |pass )?--(\w+)(?:=(<[^>]*>|'[^']*'|[^\s,;]*[^\s,;.:?)]))?")
_NAMED = re.compile(r"(?<![\w.(-])([a-z]\w+)(?==|\s+must\b)")
# An error that went through nothing but these is no error of the script's own code.
_LIBRARIES = {"plsc_tf", "tensorflow", "keras", "numpy", "absl", "PIL"}
_LIBRARIES |= set(sys.stdlib_module_names)


def for_scripts(cls):
    """Decorates a class whose methods a script calls: its errors are worded for it.

    An error that a user can act on names the setter instead of the flag, and its
    traceback ends at the script's own line; PLSC_TF_TRACEBACK=1 in the environment
    shows all of it. An error that comes from code of the user's own, as a reader or a
    network, stays as it is.
    """
    for name in dir(cls):
        member = getattr(cls, name)
        if isinstance(member, property):
            setattr(cls, name, property(_worded(member.fget), doc=member.__doc__))
        elif callable(member) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _worded(member))
    return cls


def _worded(method):
    @functools.wraps(method)
    def call(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except Exception as error:
            shown = os.environ.get(cli.TRACEBACK_VARIABLE) == "1"
            if shown or not cli.is_for_users(error) or not _is_of_libraries(error):
                raise
            if len(error.args) == 1 and isinstance(error.args[0], str):
                error.args = (in_setters(error.args[0]),)
            raise error.with_traceback(None) from None

    return call


def in_setters(text):
    """Returns a message with setters in the place of command-line flags."""
    text = _FLAG.sub(_call, text)
    known, setters = known_options(), []
    for name in _NAMED.findall(text):
        setter = SETTERS.get(known[name].name) if name in known else None
        if setter and setter not in (*setters, *re.findall(r"set_\w+", text)):
            setters.append(setter)
    return f"{text} In a script: {', '.join(setters)}." if setters else text


def _call(match):
    """The call in a script that does what a flag does."""
    verb, name, value = match.groups()
    known = known_options()
    negative = name.startswith("no") and name[2:] in known and name not in known
    if negative:
        name, value = name[2:], "false"
    if name not in known:
        return match[0]
    option = known[name]
    if value is None and option.boolean:
        value = "true"
    shown = "..." if value is None else _literal(option, value)
    setter = SETTERS.get(option.name)
    if setter is None:
        call = f"Entry({option.name}={shown})"
    elif value is None or setter in _SEVERAL:
        call = setter
    else:
        call = f"{setter}({shown})"
    verbs = {"Pass ": "Write ", "pass ": "write "}
    return f"{verbs.get(verb, '')}{call}"


def _literal(option, text):
    """A flag's value as Python writes it; placeholders as they are."""
    try:
        value = option.parse(text.strip("'"))
    except ValueError:
        return repr(text)
    return repr(list(value) if option.many else value)


def _is_of_libraries(error):
    """Whether an error, and what led to it, was raised below no code of the user's."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            module = frame.f_globals.get("__name__", "")
            if module.partition(".")[0] not in _LIBRARIES:
                return False
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
    return True
