"""Defines the options for reading and writing checkpoints."""

from plsc_tf.flags.option import OptionGroup, Secret, option


class Checkpoints(OptionGroup):
    """Options for checkpoint folders, saving, and handling damaged checkpoints."""

    model_save_dir: str = option(
        "./output", "folder of the run; if it holds checkpoints, the run resumes (PLSC)"
    )
    checkpoint_dir: str = option(
        "",
        "checkpoint to start from, evaluate or export (PLSC; FastNN model_dir)",
        aliases=("model_dir",),
    )
    ckpt_file_name: str | None = option(
        None, "name of a checkpoint in checkpoint_dir; None: the newest one (FastNN)"
    )
    save_checkpoints_steps: int = option(
        0,
        "steps between two checkpoints, in addition to save_checkpoints_epochs; 0: "
        "none (FastNN)",
        lower=0,
        applies="hooks=CheckpointSaverHook",
    )
    keep_checkpoint_max: int = option(
        5,
        "number of newest checkpoints to keep; 0: all (PLSC "
        "set_max_last_checkpoint_num)",
        lower=0,
    )
    restart: bool = option(False, "start over, in a new folder", saved=False)
    save_checkpoints_epochs: int = option(
        1,
        "epochs between two checkpoints; 0: none, only by steps and at the end",
        lower=0,
        applies="hooks=CheckpointSaverHook",
    )
    save_weights_only: bool = option(False, "save only the data that evaluation needs")
    save_best: bool = option(
        False,
        "keep the weights with the best verification accuracy in model_save_dir/best",
        applies="with_test and val_targets",
    )
    save_in_background: bool = option(
        True, "continue training while a checkpoint is written; needs more memory"
    )
    on_save_error: str = option(
        "stop",
        "if a checkpoint cannot be written: stop, or continue without it",
        choices=("stop", "continue"),
    )
    on_damaged_checkpoint: str = option(
        "stop",
        "if the newest checkpoint is damaged: stop, or resume from the previous one",
        choices=("stop", "previous"),
    )
    allow_changes: tuple[str, ...] = option(
        (),
        "options, such as margin, that a resume may change although they define the "
        "run",
        saved=False,
        applies="resumed",
    )
    prove_resume: int = option(
        0,
        "only check that a resume after this number of steps is exact, to the bit",
        lower=0,
        saved=False,
    )

    fs_name: str = option(
        "",
        "file system of the folders below, such as hdfs://namenode:9000 (PLSC "
        "set_hdfs_info)",
        applies="fs_checkpoint_dir or fs_dir_for_save",
    )
    fs_ugi: Secret = option(
        "",
        "user,password for that file system, or @file for a file with both on its "
        "first line; PLSC_TF_FS_UGI is safer. Never shown or saved (PLSC "
        "set_hdfs_info)",
        saved=False,
    )
    fs_checkpoint_dir: str = option(
        "", "folder to copy into checkpoint_dir before training (PLSC set_hdfs_info)"
    )
    fs_dir_for_save: str = option(
        "", "folder to copy model_save_dir into after training (PLSC set_hdfs_info)"
    )

    REFUSED = {
        "ckpt_file_name and no checkpoint_dir": "ckpt_file_name names a checkpoint in "
        "checkpoint_dir (FastNN model_dir): set that too.",
        "no model_save_dir": "model_save_dir must name the folder of the run.",
        "fs_checkpoint_dir and no checkpoint_dir": "fs_checkpoint_dir is copied into "
        "checkpoint_dir before training: set that to a local folder.",
    }
