"""Defines the options for reading and writing checkpoints."""

from plsc_tf.flags.option import Count, OptionGroup, Secret, option, option_if

_saver = option_if("hooks=CheckpointSaverHook")


class Checkpoints(OptionGroup):
    """Options for checkpoint folders, saving, and handling damaged checkpoints."""

    model_save_dir: str = option(
        "./output", "folder of the run; if it holds checkpoints, the run resumes (PLSC)"
    )
    checkpoint_dir: str = option(
        "", "checkpoint to start from, evaluate or export (PLSC)", aliases="model_dir"
    )
    ckpt_file_name: str | None = option(
        None, "name of a checkpoint in checkpoint_dir; None: the newest one (FastNN)"
    )
    save_checkpoints_steps: Count = _saver(
        0, "steps between two checkpoints; 0: only by epochs (FastNN)"
    )
    keep_checkpoint_max: Count = option(
        5, "newest checkpoints to keep; 0: all (PLSC max_last_checkpoint_num)"
    )
    restart: bool = option(False, "start over, in a new folder", saved=False)
    save_checkpoints_epochs: Count = _saver(
        1, "epochs between two checkpoints; 0: only by steps and at the end"
    )
    save_weights_only: bool = option(False, "save only the data that evaluation needs")
    save_best: bool = option(
        False,
        "also keep the checkpoint of the epoch with the best accuracy",
        applies="with_test and val_targets",
    )
    save_in_background: bool = option(
        True, "continue training while a checkpoint is written; needs more memory"
    )
    on_save_error: str = option(
        "stop", "if a save fails: stop, or continue without it", choices="stop continue"
    )
    on_damaged_checkpoint: str = option(
        "stop",
        "if the newest checkpoint is damaged: stop, or resume from the previous one",
        choices="stop previous",
    )
    allow_changes: tuple[str, ...] = option(
        (),
        "options that a resume may change although they define the run, such as margin",
        saved=False,
        applies="resumed",
    )

    fs_name: str = option(
        "",
        "file system of the folders below, such as hdfs://namenode:9000 (PLSC)",
        applies="fs_checkpoint_dir or fs_dir_for_save",
    )
    fs_ugi: Secret = option(
        "",
        "the user for fs_name; a password after a comma is ignored (PLSC)",
        saved=False,
    )
    fs_checkpoint_dir: str = option(
        "", "folder to copy into checkpoint_dir before training (PLSC)"
    )
    fs_dir_for_save: str = option(
        "", "folder to copy model_save_dir into after training (PLSC)"
    )

    REFUSED = {
        "ckpt_file_name and no checkpoint_dir": "ckpt_file_name needs checkpoint_dir.",
        "no model_save_dir": "model_save_dir must name the folder of the run.",
        "fs_checkpoint_dir and no checkpoint_dir": "fs_checkpoint_dir needs "
        "checkpoint_dir, the local folder to copy it to.",
    }
