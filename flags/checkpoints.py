"""Where and how a run reads and writes checkpoints."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, Secret, option


@dataclasses.dataclass(frozen=True)
class Checkpoints(OptionGroup):
    """Checkpoints."""

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
        "steps between two checkpoints, beside the one after each epoch; 0: only those "
        "(FastNN save_checkpoints_steps, 1000)",
        lower=0,
        applies="hooks=CheckpointSaverHook",
    )
    keep_checkpoint_max: int = option(
        5,
        "newest checkpoints kept; 0: all (PLSC 0.2 set_max_last_checkpoint_num)",
        lower=0,
    )
    restart: bool = option(
        False, "start anew, in a fresh folder, instead of resuming", saved=False
    )
    save_checkpoints_epochs: int = option(
        1,
        "epochs between two checkpoints; 0: only by steps and at the end",
        lower=0,
        applies="hooks=CheckpointSaverHook",
    )
    save_weights_only: bool = option(
        False,
        "checkpoints without what only a resume needs (optimizer, random states), "
        "which no training can go on from",
    )
    save_best: bool = option(
        False,
        "keep the weights of the epoch with the best mean accuracy in verification in "
        "model_save_dir/best",
        applies="with_test and val_targets",
    )
    save_in_background: bool = option(
        True,
        "train on while a checkpoint is written, which takes memory for at most one "
        "copy of weights and optimizer state; false: training waits, without a copy",
    )
    on_save_error: str = option(
        "stop",
        "when a checkpoint cannot be written (disk full, server gone): stop, or "
        "continue without it; older ones stay as they are",
        choices=("stop", "continue"),
    )
    on_damaged_checkpoint: str = option(
        "stop",
        "when the newest checkpoint is not what was written: stop, or go on from the "
        "previous one that is whole; nothing is deleted",
        choices=("stop", "previous"),
    )
    allow_changes: tuple[str, ...] = option(
        (),
        "options whose change gives a resumed run another meaning, and that may change "
        "all the same, as loss_type,margin; without it such a change is an error, that "
        "of numbers as the learning rate is logged",
        saved=False,
        applies="resumed",
    )
    prove_resume: int = option(
        0,
        "train: only prove that a resume is exact. Trains twice this many steps at "
        "once, then again with a stop after half of them, and compares losses and "
        "weights bit for bit; in folders of its own below model_save_dir",
        lower=0,
        saved=False,
    )

    fs_name: str = option(
        "",
        "file system of the two folders below, as hdfs://namenode:9000; empty: they "
        "say it themselves (PLSC set_hdfs_info fs_name)",
        applies="fs_checkpoint_dir or fs_dir_for_save",
    )
    fs_ugi: Secret = option(
        "",
        "user,password of that file system. A command line can be seen by others: "
        "prefer @file, whose first line it is, or PLSC_TF_FS_UGI in the environment. "
        "It is shown and saved nowhere; Hadoop gets the user's name, as "
        "HADOOP_USER_NAME unless that is set, and has no use for the password (PLSC "
        "set_hdfs_info fs_ugi)",
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

    def __post_init__(self):
        super().__post_init__()
        if not self.model_save_dir:
            raise ValueError(
                "model_save_dir must name the folder of the run. Received: "
                "model_save_dir=''."
            )
        if self.ckpt_file_name:
            self._settle_checkpoint()
        if self.fs_checkpoint_dir and not self.checkpoint_dir:
            raise ValueError(
                "fs_checkpoint_dir is copied into checkpoint_dir before training: set "
                "that to a local folder. Received: checkpoint_dir=''."
            )

    def _settle_checkpoint(self):
        """Makes checkpoint_dir the checkpoint that FastNN names by two options."""
        if not self.checkpoint_dir:
            raise ValueError(
                "ckpt_file_name names a checkpoint in checkpoint_dir (FastNN "
                "model_dir): set that too. Received: checkpoint_dir='', "
                f"ckpt_file_name={self.ckpt_file_name!r}."
            )
        path = f"{self.checkpoint_dir.rstrip('/')}/{self.ckpt_file_name}"
        # The only way to store a value in a frozen dataclass.
        object.__setattr__(self, "checkpoint_dir", path)
        object.__setattr__(self, "ckpt_file_name", None)
