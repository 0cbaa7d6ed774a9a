"""Options of other systems that stand for several of ours, or for their values.

MindSpore's `boost_config_dict` and `amp_level`, and FastNN's `ckpt_file_name`.
"""

import ast
import json
from collections.abc import Mapping, Set

from plsc_tf.hints import did_you_mean

# MindSpore's names in the dictionary, and the options that they set.
_OPTIONS = {
    "dim_reduce.rho": "dim_reduce_rho",
    "dim_reduce.gamma": "dim_reduce_gamma",
    "dim_reduce.alpha": "dim_reduce_alpha",
    "dim_reduce.sigma": "dim_reduce_sigma",
    "dim_reduce.n_component": "n_component",
    "dim_reduce.n_components": "n_component",
    "dim_reduce.pca_mat_path": "pca_mat_path",
    "dim_reduce.weight_load_dir": "weight_load_dir",
    "dim_reduce.timeout": "dim_reduce_timeout",
}
_PARTS = ("boost", "common", "dim_reduce")
# num_replicas decides here.
_UNUSED = ("common.device_num", "common.device_number")
# Tricks of MindSpore's that dimension reduction switches off there.
_OTHER_TRICKS = (
    "boost.less_bn",
    "boost.grad_freeze",
    "boost.adasum",
    "boost.grad_accumulation",
    "boost.loss_scale_group",
)


def translate(
    values: Mapping, given: Set[str], known: Mapping
) -> tuple[dict, set[str]]:
    """Replaces options of other systems by ours.

    Args:
        values: {option name: checked value}.
        given: names of those that the user set.
        known: every `Option` by name.

    Returns:
        (the new values, the names that count as given).

    Raises:
        ValueError: such an option cannot be read, or contradicts another one.
    """
    values, given, sources = dict(values), set(given), {}
    if values.get("boost_config_dict") and values.get("boost_level") != "o0":
        text = values.pop("boost_config_dict")
        sources["boost_config_dict"] = read_boost_config(text)
    if values.get("amp_level") not in (None, "o0"):
        del values["amp_level"]
        sources["amp_level"] = {"use_fp16": True}
    if values.get("ckpt_file_name"):
        name, folder = values.pop("ckpt_file_name"), values.get("checkpoint_dir", "")
        if not folder:
            raise ValueError(
                "ckpt_file_name names a checkpoint in checkpoint_dir (FastNN "
                "model_dir): set that too. Received: checkpoint_dir='', "
                f"ckpt_file_name={name!r}."
            )
        values["checkpoint_dir"] = f"{folder.rstrip('/')}/{name}"
        given = given - {"ckpt_file_name"} | {"checkpoint_dir"}
    for source, options in sources.items():
        for name, value in options.items():
            value = known[name].check(value)
            if name in given and values[name] != value:
                hint = " (mode=auto leaves it off)" if name == "dim_reduce" else ""
                raise ValueError(
                    f"{name} and {source} contradict each other. Received: "
                    f"{name}={values[name]!r}, and by {source} {value!r}{hint}."
                )
            values[name] = value
        given = given - {source} | options.keys()
    return values, given


def read_boost_config(text: str) -> dict:
    """Returns `{option: value}` of MindSpore's dictionary.

    Raises:
        ValueError: it cannot be read, or has keys that mean nothing here.
    """
    values = {}
    for part, content in _parse(text).items():
        if part not in _PARTS:
            _refuse(part, content, _PARTS)
        if not isinstance(content, dict):
            raise ValueError(
                f"boost_config_dict: {part} must be a dictionary. Received: "
                f"{content!r}."
            )
        values |= {f"{part}.{key}": value for key, value in content.items()}
    mode = values.pop("boost.mode", "manual")
    on = values.pop("boost.dim_reduce", None)
    options = {}
    if mode not in ("auto", "manual"):
        _refuse("boost.mode", mode, ("auto", "manual"))
    if on not in (None, True, False):
        _refuse("boost.dim_reduce", on, ("true", "false"))
    if on is not None:
        options["dim_reduce"] = on and mode == "manual"
    for key, value in values.items():
        if key in _OPTIONS:
            options[_OPTIONS[key]] = "" if value is None else value
        elif key not in _UNUSED and (key not in _OTHER_TRICKS or value is not False):
            part = key.partition(".")[0]
            known = ["boost.mode", "boost.dim_reduce", *_UNUSED, *_OPTIONS]
            _refuse(key, value, [name for name in known if name.startswith(part)])
    return options


def _parse(text):
    try:
        try:
            whole = json.loads(text)
        except ValueError:
            whole = ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise ValueError(
            "boost_config_dict must be a dictionary in JSON or Python. Received: "
            f"boost_config_dict={text!r} ({error})"
        ) from error
    if not isinstance(whole, dict):
        raise ValueError(
            f"boost_config_dict must be a dictionary. Received: {type(whole).__name__}"
        )
    return whole


def _refuse(key, value, known):
    raise ValueError(
        f"boost_config_dict: {key}={value!r} means nothing here; expected one of "
        f"{', '.join(known)}.{did_you_mean(key, known)}"
    )
