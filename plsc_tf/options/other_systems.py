"""Translates options of other systems.

The tables in other_systems.toml contain the names. MindSpore's `boost_config_dict` and
`amp_level`, and FastNN's `ckpt_file_name`, are translated to our options.
"""

import ast
import contextlib
import importlib.resources
import json
import tomllib
from collections.abc import Collection, Mapping, Set

from plsc_tf.flags.head import Head
from plsc_tf.flags.option import options_of
from plsc_tf.requirements import did_you_mean, nearest, normalize, require

_FILE = importlib.resources.files("plsc_tf.options") / "other_systems.toml"
_TABLES = tomllib.loads(_FILE.read_text("utf-8"))
# {name there: name of our option that takes the same values}.
RENAMED: dict[str, str] = _TABLES["renamed"]
# {name: reason} of the options that are accepted so that other systems' files work
# unchanged, but that have no effect. Some exist only in FastNN's files.
FASTNN_MARKS: dict[str, str] = _TABLES["ignored_only_in_fastnn"]
IGNORED: dict[str, str] = FASTNN_MARKS | _TABLES["ignored"]
# {name: advice} of the options that need an explanation instead of another name.
EXPLAINED: dict[str, str] = _TABLES["explained"]


def ignored_name(name: str, value: object = None) -> str | None:
    """Returns the key of `IGNORED` that a name or its alias stands for, or None."""
    name = _TABLES["ignored_spellings"].get(name, name)
    # FastNN's protocol is how workers communicate; ours is that of an evaluation.
    ours = name == "protocol" and not str(value or "grpc").startswith("grpc")
    return name if name in IGNORED and not ours else None


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
    if (word := normalize(name).removeprefix("set_")) in EXPLAINED:
        return f"{sentence} {EXPLAINED[word]}"
    best = nearest_option(name, names)
    return f"{sentence} Did you mean '{best}'?" if best else sentence


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
        the defaults, also of some options in `names`; {} unless one of these exists
        only in FastNN.
    """
    names = set(names)
    assumed: dict = {}
    if not FASTNN_MARKS.keys() & names:
        return assumed
    if not names & {item.name for item in options_of(Head)} - _OF_ANY_HEAD:
        spared = ("norms", "biases", "prelus")
        assumed |= {"loss_type": "softmax", "no_weight_decay_on": spared}
        if "learning_rate" in names:
            assumed["lr_base_batch_size"] = 0
    if not names & {"val_targets", "with_test"}:
        assumed["with_test"] = False
    return assumed


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
        options = read_boost_config(values.pop("boost_config_dict"))
        sources["boost_config_dict"] = options
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
    values, options, known = {}, {}, _TABLES["boost_config_dict"]
    for part, content in _dictionary(text, text).items():
        for key, value in _dictionary(content, text).items():
            values[f"{part}.{key}"] = value
    for key, value in values.items():
        is_off = key in known["must_be_false"] and value is False
        if key not in known["keys"] and not is_off:
            raise ValueError(
                f"boost_config_dict does not support {key}={value!r}. Expected one of "
                f"{', '.join(known['keys'])}.{did_you_mean(key, known['keys'])}"
            )
        if key.startswith("dim_reduce."):
            options[key.partition(".")[2]] = "" if value is None else value
    mode, on = values.get("boost.mode", "manual"), values.get("boost.dim_reduce")
    rule = "boost_config_dict must have the mode auto or manual"
    require(mode in ("auto", "manual"), rule, mode=repr(mode))
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
