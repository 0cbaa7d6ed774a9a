"""Translates options of other systems.

The tables contain names from PLSC 0.1 and 0.2 (`Entry.set_*` without "set_"), from
hyper-parameter files of PAI FastNN and MindSpore, from arcface_torch's configs, and
from the command lines of AdaFace and MagFace. MindSpore's `boost_config_dict` and
`amp_level`, and FastNN's `ckpt_file_name`, are translated to our options.
"""

import ast
import contextlib
import json
from collections.abc import Collection, Mapping, Set

from plsc_tf.flags.head import Head
from plsc_tf.flags.option import options_of
from plsc_tf.requirements import did_you_mean, nearest, normalize, require

# Pairs of an option of another system and our option that takes the same values.
_PAIRS = """
class_num num_classes  data_dir dataset_dir  epochs num_epochs  h adaface_h
eval_files val_targets  file_pattern train_files  gpus num_replicas
l_a magface_norms  l_margin magface_margins  log_period log_loss_every_n_iters
log_trainable_vars_statistics print_model_statistics  loss loss_type
lr_decay_factor learning_rate_decay_factor  mixed_precision use_fp16
max_last_checkpoint_num keep_checkpoint_max  model model_name  network model_name
num_gpus num_replicas  num_image num_sample_per_epoch  output model_save_dir
output_dir model_save_dir  step_boundaries lr_steps  steps stop_at_step
t_alpha adaface_t_alpha  test_period eval_every_n_steps  train_steps stop_at_step
u_a magface_norms  u_margin magface_margins
""".split()
RENAMED = dict(zip(_PAIRS[::2], _PAIRS[1::2], strict=True))

# Options that are accepted so that other systems' files work unchanged, but that have
# no effect; the log gives the reason.
_TRANSPORT = "TensorFlow chooses how workers communicate; see communication"
_THREADS = "TensorFlow decides; set {} in the environment to override it"
# Options of FastNN that no other system has, so they identify a FastNN file.
FASTNN_MARKS = {
    "enable_paisoar": "PAISoar is not used; all GPUs of a machine train together",
    "protocol": _TRANSPORT,
    "rdma_driver_config": _TRANSPORT,
    "communication_policy": "use communication=nccl or ring",
    "tensor_fusion_max_bytes": "use gradient_bucket_mb",
    "num_loss_chunks": "use gradient_accumulation_steps",
}
IGNORED = {
    **FASTNN_MARKS,
    # FastNN
    "ps_hosts": "there are no parameter servers",
    "inter_op_parallelism_threads": _THREADS.format("TF_NUM_INTEROP_THREADS"),
    "intra_op_parallelism_threads": _THREADS.format("TF_NUM_INTRAOP_THREADS"),
    # MindSpore
    "drop_overflow_update": "nonfinite steps are never applied; see on_nonfinite",
    "device_num": "use num_replicas and the options of the cluster",
}
# Spellings in FastNN's sample file and in MindSpore's dictionary.
_IGNORED_ALIASES = {"enable_paisora": "enable_paisoar", "device_number": "device_num"}

# Names that need an explanation instead of another name.
EXPLAINED = {
    "distfc_attr": "Instead of PLSC's set_distfc_attr, set head_initializer, "
    "head_initial_bias, head_learning_rate_factor and head_weight_decay.",
    "gradient_acc": "Instead of arcface_torch's gradient_acc, set "
    "gradient_accumulation_steps, and multiply batch_size by it.",
    "margin_list": "Instead of arcface_torch's margin_list, set margin1, "
    "margin and margin3.",
    "model_parallel": "Instead of PLSC 0.2's model_parallel, put dist_ before the "
    "loss, as in loss_type=dist_arcface.",
    "resume": "A run always resumes in its model_save_dir; --restart starts over.",
}


def ignored_name(name: str) -> str | None:
    """Returns the key of `IGNORED` that a name or its alias stands for, or None."""
    name = _IGNORED_ALIASES.get(name, name)
    return name if name in IGNORED else None


def nearest_option(name: str, names: Collection[str]) -> str | None:
    """Returns the option that the user probably meant, or None.

    Args:
        name: the name as the user wrote it.
        names: all options and aliases.
    """
    name = normalize(name).removeprefix("set_")
    if name in names:
        return name
    if RENAMED.get(name) in names:
        return RENAMED[name]
    return next(iter(nearest(name, names)), None)


def unknown_option(name: str, names: Collection[str]) -> str:
    """Returns the error message for an unknown option, with the best advice.

    Args:
        name: the name as the user wrote it, without dashes.
        names: all options and aliases.
    """
    sentence = f"unknown option '{name}'."
    word = normalize(name).removeprefix("set_")
    if word in EXPLAINED:
        return f"{sentence} {EXPLAINED[word]}"
    best = nearest_option(name, names)
    if best:
        return f"{sentence} Did you mean '{best}'?"
    return sentence


# Head options that don't imply a particular loss.
_OF_ANY_HEAD = {"calc_acc", "label_smoothing"}


def fastnn_assumptions(names: Collection[str]) -> dict:
    """Returns FastNN's defaults for options that its files lack, `{option: value}`.

    FastNN's files name neither a head nor a verification set. The defaults of plsc_tf
    are PLSC's: a margin head and the verification set lfw. FastNN uses plain softmax,
    no verification, and TF-Slim's weight decay, which applies only to kernels. FastNN
    doesn't scale the learning rate with the batch size.

    Args:
        names: names of all options set in files and on the command line.

    Returns:
        the defaults; {} unless one of the options exists only in FastNN.
    """
    names = set(names)
    assumed: dict = {}
    if not FASTNN_MARKS.keys() & names:
        return assumed
    if not names & {item.name for item in options_of(Head)} - _OF_ANY_HEAD:
        assumed["loss_type"] = "softmax"
        if "no_weight_decay_on" not in names:
            assumed["no_weight_decay_on"] = ("norms", "biases", "prelus")
        if "learning_rate" in names and "lr_base_batch_size" not in names:
            assumed["lr_base_batch_size"] = 0
    if not names & {"val_targets", "with_test"}:
        assumed["with_test"] = False
    return assumed


# Keys of MindSpore's boost_config_dict. Those of dim_reduce are names of our options.
_KEYS = (
    *("boost.mode", "boost.dim_reduce", "dim_reduce.rho", "dim_reduce.gamma"),
    *("dim_reduce.alpha", "dim_reduce.sigma", "dim_reduce.timeout"),
    *("dim_reduce.n_component", "dim_reduce.n_components"),
    *("dim_reduce.pca_mat_path", "dim_reduce.weight_load_dir"),
    # These are ignored: num_replicas sets the number of devices.
    *("common.device_num", "common.device_number"),
)
# Other features of MindSpore, which dimension reduction turns off there.
_OTHER_TRICKS = (
    *("boost.less_bn", "boost.grad_freeze", "boost.adasum"),
    *("boost.grad_accumulation", "boost.loss_scale_group"),
)


def translate(values: Mapping, given: Set[str], known: Mapping) -> tuple[dict, set]:
    """Replaces options of other systems with ours.

    Args:
        values: `{option name: checked value}`.
        given: names of the options that the user set.
        known: all options, `{name: Option}`.

    Returns:
        (the new values, the names that count as given).

    Raises:
        ValueError: an option of another system cannot be read, or contradicts another
            option.
    """
    values, given, sources = dict(values), set(given), {}
    if values.get("boost_config_dict") and values.get("boost_level") != "o0":
        text = values.pop("boost_config_dict")
        sources["boost_config_dict"] = read_boost_config(text)
    if values.get("amp_level") not in (None, "o0"):
        del values["amp_level"]
        sources["amp_level"] = {"use_fp16": True}
    if values.get("ckpt_file_name") and values.get("checkpoint_dir"):
        name, folder = values.pop("ckpt_file_name"), values["checkpoint_dir"]
        values["checkpoint_dir"] = f"{folder.rstrip('/')}/{name}"
        given = given - {"ckpt_file_name"} | {"checkpoint_dir"}
    for source, options in sources.items():
        given.discard(source)
        for alias, text in options.items():
            name, value = known[alias].name, known[alias].check(text)
            if name in given and values[name] != value:
                hint = " (mode=auto leaves it off)" if name == "dim_reduce" else ""
                raise ValueError(
                    f"{name} contradicts {source}. Received: {name}={values[name]!r}, "
                    f"but {source} sets {value!r}{hint}."
                )
            values[name] = value
            given.add(name)
    return values, given


def read_boost_config(text: str) -> dict:
    """Converts MindSpore's dictionary to `{option: value}`.

    Raises:
        ValueError: the dictionary cannot be read, or has unknown keys.
    """
    values, options = {}, {}
    for part, content in _dictionary(text, text).items():
        for key, value in _dictionary(content, text).items():
            values[f"{part}.{key}"] = value
    for key, value in values.items():
        if key not in _KEYS and (key not in _OTHER_TRICKS or value is not False):
            _refuse(key, value, _KEYS)
        if key.startswith("dim_reduce."):
            options[key.partition(".")[2]] = "" if value is None else value
    mode, on = values.get("boost.mode", "manual"), values.get("boost.dim_reduce")
    if mode not in ("auto", "manual"):
        _refuse("boost.mode", mode, ("auto", "manual"))
    if on is not None:
        options["dim_reduce"] = on if mode == "manual" else False
    return options


def _dictionary(content, text):
    """Parses a dictionary in JSON or Python syntax; returns a dict unchanged."""
    for read in (json.loads, ast.literal_eval):
        if isinstance(content, str):
            with contextlib.suppress(ValueError, SyntaxError):
                content = read(content)
    rule = "boost_config_dict must be a dictionary of dictionaries in JSON or Python"
    require(isinstance(content, dict), rule, boost_config_dict=repr(text))
    return content


def _refuse(key, value, known):
    raise ValueError(
        f"boost_config_dict does not support {key}={value!r}. Expected one of "
        f"{', '.join(known)}.{did_you_mean(key, known)}"
    )
