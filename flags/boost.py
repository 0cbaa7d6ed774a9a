"""Defines the options of dimension-reduction training.

Stage 1 takes snapshots of the weights; stage 2 trains with reduced dimensions.
"""

from plsc_tf.flags.conditions import name_in
from plsc_tf.flags.option import Amount, Count, OptionGroup, Positive, option, option_if

# Conditions, see `plsc_tf.flags.conditions`.
_STAGE_1 = "snapshot_every_n_steps or snapshots_per_epoch"
_STAGE_2 = "dim_reduce and no boost_level=o0"
_not_o0 = option_if("no boost_level=o0")
_stage_1 = option_if(_STAGE_1)
_stage_2 = option_if(_STAGE_2)


class Boost(OptionGroup):
    """Options of dimension-reduction training; see docs/dimension_reduction.md."""

    snapshot_every_n_steps: Count = option(
        0, "stage 1: steps between two snapshots of the weights; 0: none"
    )
    snapshots_per_epoch: Count = option(
        0, "stage 1: number of snapshots in each epoch, evenly spaced; 0: none"
    )
    snapshot_start_epoch: Count = _stage_1(0, "epochs before the first snapshot")
    snapshot_max: Count = _stage_1(
        40, "newest snapshots to keep; 0: all (MindSpore keep_checkpoint_max)"
    )
    snapshot_dir: str = _stage_1(
        "", "folder for the snapshots; empty: model_save_dir/snapshots"
    )
    dim_reduce: bool = _not_o0(
        False, "stage 2: train in the dimensions that the snapshots span (MindSpore)"
    )
    boost_level: str | None = option(
        None,
        "O0 turns dim_reduce off; O1 and O2 change nothing (MindSpore)",
        choices="o0 o1 o2",
        applies="dim_reduce or boost_config_dict",
    )
    boost_config_dict: str = _not_o0(
        "", "dimension-reduction options as a dictionary, in JSON or Python (MindSpore)"
    )
    dim_reduce_scope: str = option(
        "backbone",
        "weights of snapshots and stage 2: backbone, or all (with the class weights)",
        choices="backbone all",
        applies=f"{_STAGE_1} or {_STAGE_2}",
    )
    weight_load_dir: str = option(
        "", "folder of snapshots (MindSpore)", applies=f"{_STAGE_2} and no pca_mat_path"
    )
    pca_mat_path: str = _stage_2(
        "", ".npy file of a projection; empty: from weight_load_dir (MindSpore)"
    )
    n_component: Positive = _stage_2(
        32, "dimensions to keep (MindSpore)", aliases="n_components"
    )
    dim_reduce_rho: float = _stage_2(
        0.55, "factor of the step length per trial", within="(0, 1)", aliases="rho"
    )
    dim_reduce_gamma: float = _stage_2(
        0.9, "momentum in the other dimensions", within="[0, 1)", aliases="gamma"
    )
    dim_reduce_alpha: Amount = _stage_2(
        0.001, "learning rate in the other dimensions", aliases="alpha"
    )
    dim_reduce_sigma: float = _stage_2(
        0.4,
        "share of the expected decrease that a trial must reach (MindSpore sigma)",
        within="(0, 1)",
        aliases="sigma",
    )
    line_search_trials: Positive = _stage_2(2, "largest number of step lengths to try")
    dim_reduce_timeout: float = _stage_2(
        1800.0,
        "seconds to wait for the chief's projection (MindSpore)",
        within="(0, inf)",
        aliases="timeout",
    )

    REFUSED = {
        "snapshot_every_n_steps and snapshots_per_epoch": "Set only one of these two.",
        "dim_reduce and no boost_level=o0 and no pca_mat_path and no weight_load_dir": (
            "dim_reduce needs weight_load_dir (the snapshots of stage 1) or "
            "pca_mat_path (a projection computed from them)."
        ),
        **{
            f"{_STAGE_2} and {term}": f"dim_reduce does not support {name_in(term)}: "
            "leave out one of them."
            for term in (
                *("ema_decay", "mixup", "cutmix", "learning_rate_factors"),
                *("weight_decay_on", "steps_per_execution>1", "teacher"),
            )
        },
        **{
            f"{_STAGE_2} and dim_reduce_scope=all and {term}": (
                f"dim_reduce_scope=all does not support {name_in(term)}: leave it out, "
                "or use dim_reduce_scope=backbone."
            )
            for term in (
                *("no head_learning_rate_factor=1.0", "no head_weight_decay=None"),
                *("sample_rate<1", "head_weight_dtype=bfloat16,int8,float8"),
            )
        },
    }

    @property
    def reduces(self) -> bool:
        """True if this is a stage 2 training."""
        return self.dim_reduce and self.boost_level != "o0"

    @property
    def snapshots(self) -> bool:
        """True if the training takes snapshots."""
        return bool(self.snapshot_every_n_steps or self.snapshots_per_epoch)
