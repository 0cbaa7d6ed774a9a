"""Dimension-reduction training: its snapshots (stage 1) and its steps (stage 2)."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option

# Conditions, see `plsc_tf.flags.conditions`.
_STAGE_1 = "snapshot_every_n_steps or snapshots_per_epoch"
_STAGE_2 = "dim_reduce and no boost_level=o0"


@dataclasses.dataclass(frozen=True)
class Boost(OptionGroup):
    """Dimension-reduction training, see docs/dimension_reduction.md."""

    snapshot_every_n_steps: int = option(
        0, "stage 1: steps between two snapshots of the weights; 0: none", lower=0
    )
    snapshots_per_epoch: int = option(
        0, "stage 1: snapshots in each epoch, evenly spaced; 0: none", lower=0
    )
    snapshot_start_epoch: int = option(
        0, "stage 1: epochs before the first snapshot", lower=0, applies=_STAGE_1
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
        "stage 2: train in the few dimensions that the snapshots span (MindSpore "
        "dim_reduce)",
        applies="no boost_level=o0",
    )
    boost_level: str | None = option(
        None,
        "O0 switches dimension reduction off, whatever else is set; O1 and O2 leave it "
        "to dim_reduce and boost_config_dict (MindSpore boost_level)",
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
        "weights in snapshots and stage 2: backbone, while the optimizer updates the "
        "head; or all, also the class weights",
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
        "empty: computed from weight_load_dir and saved as model_save_dir/pca_mat.npy "
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
        within="(0, 1)",
        aliases=("rho",),
        applies=_STAGE_2,
    )
    dim_reduce_gamma: float = option(
        0.9,
        "stage 2: momentum of the gradient outside the dimensions (MindSpore gamma)",
        within="[0, 1)",
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
        "stage 2: share of the expected decrease that a trial must reach (MindSpore "
        "sigma)",
        within="(0, 1)",
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
        within="(0, inf)",
        aliases=("timeout",),
        applies=_STAGE_2,
    )

    REFUSED = {
        "snapshot_every_n_steps and snapshots_per_epoch": "Set snapshot_every_n_steps "
        "or snapshots_per_epoch.",
        "dim_reduce and no boost_level=o0 and no pca_mat_path and no weight_load_dir": (
            "dim_reduce needs the snapshots of stage 1 (weight_load_dir), or a "
            "projection that was computed from them (pca_mat_path)."
        ),
    }

    @property
    def reduces(self) -> bool:
        """Whether this is a training of stage 2."""
        return self.dim_reduce and self.boost_level != "o0"

    @property
    def snapshots(self) -> bool:
        """Whether to take snapshots."""
        return bool(self.snapshot_every_n_steps or self.snapshots_per_epoch)
