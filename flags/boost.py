"""Dimension-reduction training: its snapshots (stage 1) and its steps (stage 2)."""

import ast
import dataclasses
import json

from plsc_tf.flags.option import OptionGroup, option
from plsc_tf.hints import did_you_mean

# MindSpore's names in the dictionary, and the options that they set.
_OPTIONS = {
    "common.device_num": "device_num",
    "common.device_number": "device_num",
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
# Tricks of MindSpore's that dimension reduction switches off there.
_OTHER_TRICKS = (
    "boost.less_bn",
    "boost.grad_freeze",
    "boost.adasum",
    "boost.grad_accumulation",
    "boost.loss_scale_group",
)
# Conditions, see `plsc_tf.options.effects`.
_STAGE_1 = "snapshot_every_n_steps or snapshots_per_epoch"
_STAGE_2 = "dim_reduce and no boost_level=o0"


@dataclasses.dataclass(frozen=True)
class Boost(OptionGroup):
    """Dimension-reduction training, see docs/dimension_reduction.md."""

    snapshot_every_n_steps: int = option(
        0, "stage 1: steps between two snapshots of the weights; 0: none", lower=0
    )
    snapshots_per_epoch: int = option(
        0, "stage 1: snapshots in each epoch, evenly spread; 0: none", lower=0
    )
    snapshot_start_epoch: int = option(
        0,
        "stage 1: epochs that are done before snapshots are taken",
        lower=0,
        applies=_STAGE_1,
    )
    snapshot_max: int = option(
        40,
        "stage 1: newest snapshots kept; 0: all (MindSpore keep_checkpoint_max)",
        lower=0,
        applies=_STAGE_1,
    )
    snapshot_dir: str = option(
        "",
        "stage 1: folder of the snapshots; empty: model_save_dir/snapshots",
        applies=_STAGE_1,
    )
    dim_reduce: bool = option(
        False,
        "stage 2: train in the few dimensions that the snapshots spread in (MindSpore "
        "dim_reduce)",
        applies="no boost_level=o0",
    )
    boost_level: str | None = option(
        None,
        "O0 switches dimension reduction off whatever else says, O1 and O2 leave it as "
        "dim_reduce and boost_config_dict say (MindSpore boost_level)",
        choices=("o0", "o1", "o2"),
        applies="dim_reduce or boost_config_dict",
    )
    boost_config_dict: str = option(
        "",
        "the same settings as one dictionary, in JSON or as in Python, such as "
        "{'boost': {'mode': 'manual', 'dim_reduce': True}, 'dim_reduce': {'rho': 0.5}} "
        "(MindSpore boost_config_dict)",
        applies="no boost_level=o0",
    )
    dim_reduce_scope: str = option(
        "backbone",
        "weights that snapshots hold and stage 2 reduces: backbone, while the head "
        "goes on with the optimizer; or all, also the class weights",
        choices=("backbone", "all"),
        applies=f"{_STAGE_1} or {_STAGE_2}",
    )
    weight_load_dir: str = option(
        "",
        "stage 2: folder of the snapshots (MindSpore weight_load_dir)",
        applies=f"{_STAGE_2} and no pca_mat_path",
    )
    pca_mat_path: str = option(
        "",
        "stage 2: the projection [n_component, weights] of an earlier run, .npy; "
        "empty: made from weight_load_dir and kept as model_save_dir/pca_mat.npy "
        "(MindSpore pca_mat_path)",
        applies=_STAGE_2,
    )
    n_component: int = option(
        32,
        "stage 2: dimensions that remain (MindSpore n_component, n_components)",
        lower=1,
        aliases=("n_components",),
        applies=_STAGE_2,
    )
    dim_reduce_rho: float = option(
        0.55,
        "stage 2: each trial's step, as a share of the one before (MindSpore rho)",
        lower=0,
        upper=1,
        open_ends="lower upper",
        aliases=("rho",),
        applies=_STAGE_2,
    )
    dim_reduce_gamma: float = option(
        0.9,
        "stage 2: momentum of the gradient outside the dimensions (MindSpore gamma)",
        lower=0,
        upper=1,
        open_ends="upper",
        aliases=("gamma",),
        applies=_STAGE_2,
    )
    dim_reduce_alpha: float = option(
        0.001,
        "stage 2: learning rate outside the dimensions; 0: nothing moves there "
        "(MindSpore alpha)",
        lower=0,
        aliases=("alpha",),
        applies=_STAGE_2,
    )
    dim_reduce_sigma: float = option(
        0.4,
        "stage 2: share of the expected decrease that a trial must bring (MindSpore "
        "sigma)",
        lower=0,
        upper=1,
        open_ends="lower upper",
        aliases=("sigma",),
        applies=_STAGE_2,
    )
    line_search_trials: int = option(
        2,
        "stage 2: steps that are tried before the weights stay; at full length, then "
        "dim_reduce_rho of it, and so on",
        lower=1,
        applies=_STAGE_2,
    )
    dim_reduce_timeout: float = option(
        1800.0,
        "stage 2: seconds that workers wait for the chief's projection (MindSpore "
        "timeout)",
        lower=0,
        open_ends="lower",
        aliases=("timeout",),
        applies=_STAGE_2,
    )
    device_num: int = option(
        8,
        "devices of a server (MindSpore device_num, device_number)",
        lower=1,
        saved=False,
        aliases=("device_number",),
        unused="num_replicas and the cluster's options say it here",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.boost_config_dict and self.boost_level != "o0":
            for name, value in _read_dictionary(self.boost_config_dict).items():
                self._take(name, value)
            object.__setattr__(self, "boost_config_dict", "")
        if self.snapshot_every_n_steps and self.snapshots_per_epoch:
            raise ValueError(
                "Set snapshot_every_n_steps or snapshots_per_epoch. Received: "
                f"snapshot_every_n_steps={self.snapshot_every_n_steps}, "
                f"snapshots_per_epoch={self.snapshots_per_epoch}."
            )
        if self.reduces and not (self.pca_mat_path or self.weight_load_dir):
            raise ValueError(
                "dim_reduce needs the snapshots of stage 1 (weight_load_dir), or a "
                "projection that was made of them (pca_mat_path). Received: neither."
            )

    @property
    def reduces(self):
        """Whether this is a training of stage 2."""
        return self.dim_reduce and self.boost_level != "o0"

    @property
    def snapshots(self):
        """Whether snapshots are to be kept."""
        return bool(self.snapshot_every_n_steps or self.snapshots_per_epoch)

    def _take(self, name, value):
        """Sets an option that the dictionary names, unless it was set otherwise."""
        default = type(self).__dataclass_fields__[name].default
        own = getattr(self, name)
        # The only way to store a value in a frozen dataclass.
        object.__setattr__(self, name, value)
        OptionGroup.__post_init__(self)
        if own not in (default, getattr(self, name)):
            hint = " (mode=auto leaves it off)" if name == "dim_reduce" else ""
            raise ValueError(
                f"{name} and boost_config_dict say different things. Received: "
                f"{name}={own!r}, and in the dictionary {value!r}{hint}."
            )


def _read_dictionary(text):
    """`{option: value}` of MindSpore's dictionary.

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
        elif key not in _OTHER_TRICKS or value is not False:
            part = key.partition(".")[0]
            known = ["boost.mode", "boost.dim_reduce", *_OPTIONS]
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
