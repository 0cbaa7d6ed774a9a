"""Where and how a run reads and writes checkpoints."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, Secret, option


@dataclasses.dataclass(frozen=True)
class Checkpoints(OptionGroup):
    """Folders of checkpoints, how they are written, and what happens to bad ones."""

    model_save_dir: str = option(
        "./output",
        "folder of the run: checkpoints, flags.cfg, results.json; a run that finds "
        "its own checkpoints there resumes (PLSC model_save_dir)",
    )
    checkpoint_dir: str = option(
        "",
        "folder of a checkpoint to start from, or to evaluate or export; empty: none "
        "(PLSC checkpoint_dir; FastNN model_dir)",
        aliases=("model_dir",),
    )
    ckpt_file_name: str | None = option(
        None,
        "name of the checkpoint in checkpoint_dir; None: the newest (FastNN "
        "ckpt_file_name)",
    )
    save_checkpoints_steps: int = option(
        0,
        "steps between two checkpoints, in addition to the one after each epoch; 0: "
        "none (FastNN save_checkpoints_steps, 1000)",
        lower=0,
        applies="hooks=CheckpointSaverHook",
    )
    keep_checkpoint_max: int = option(
        5,
        "newest checkpoints kept; 0: all (PLSC 0.2 set_max_last_checkpoint_num)",
        lower=0,
    )
    restart: bool = option(
        False, "start over, in a new folder, instead of resuming", saved=False
    )
    save_checkpoints_epochs: int = option(
        1,
        "epochs between two checkpoints; 0: only by steps and at the end",
        lower=0,
        applies="hooks=CheckpointSaverHook",
    )
    save_weights_only: bool = option(
        False,
        "leave out of checkpoints what only a resume needs (optimizer, random states); "
        "no training can resume from them",
    )
    save_best: bool = option(
        False,
        "keep the weights of the epoch with the best mean accuracy in verification in "
        "model_save_dir/best",
        applies="with_test and val_targets",
    )
    save_in_background: bool = option(
        True,
        "continue training while a checkpoint is written, which takes memory for at "
        "most one copy of weights and optimizer state; false: training waits",
    )
    on_save_error: str = option(
        "stop",
        "when a checkpoint cannot be written (disk full, server gone): stop, or "
        "continue without it; older ones stay as they are",
        choices=("stop", "continue"),
    )
    on_damaged_checkpoint: str = option(
        "stop",
        "when the newest checkpoint is not what was written: stop, or resume from the "
        "previous undamaged one; nothing is deleted",
        choices=("stop", "previous"),
    )
    allow_changes: tuple[str, ...] = option(
        (),
        "options that may change in a resumed run although the change alters its "
        "meaning, such as loss_type,margin; else such a change is an error, and that "
        "of numbers such as the learning rate is logged",
        saved=False,
        applies="resumed",
    )
    prove_resume: int = option(
        0,
        "train: only prove that a resume is exact. Trains twice this many steps at "
        "once, then again with a stop after half of them, and compares losses and "
        "weights bit for bit, in folders below model_save_dir",
        lower=0,
        saved=False,
    )

    fs_name: str = option(
        "",
        "file system of the two folders below, such as hdfs://namenode:9000; empty: "
        "their addresses name it (PLSC set_hdfs_info fs_name)",
        applies="fs_checkpoint_dir or fs_dir_for_save",
    )
    fs_ugi: Secret = option(
        "",
        "user,password of that file system. A command line can be seen by others: "
        "prefer @file, whose first line it is, or PLSC_TF_FS_UGI in the environment. "
        "It is never shown or saved; Hadoop gets the user's name as HADOOP_USER_NAME "
        "unless that is set, and does not use the password (PLSC set_hdfs_info fs_ugi)",
        saved=False,
    )
    fs_checkpoint_dir: str = option(
        "",
        "folder copied into checkpoint_dir before training; empty: none (PLSC "
        "set_hdfs_info fs_checkpoint_dir)",
    )
    fs_dir_for_save: str = option(
        "",
        "folder that model_save_dir is copied into after training; empty: none (PLSC "
        "set_hdfs_info fs_dir_for_save)",
    )

    REFUSED = {
        "no model_save_dir": "model_save_dir must name the folder of the run.",
        "fs_checkpoint_dir and no checkpoint_dir": "fs_checkpoint_dir is copied into "
        "checkpoint_dir before training: set that to a local folder.",
    }
