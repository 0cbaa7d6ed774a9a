"""Where a run reads and writes weights."""

import dataclasses

from plsc_tf.options import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Storage(OptionGroup):
    """Checkpoints."""

    model_save_dir: str = option(
        "./output",
        "folder of the run: checkpoints, flags.cfg, results.json; a run that finds "
        "its own checkpoints there resumes (PLSC model_save_dir)",
    )
    checkpoint_dir: str = option(
        "",
        "folder of a checkpoint to start from, or to evaluate or export; empty: none "
        "(PLSC checkpoint_dir)",
    )
    save_checkpoints_steps: int = option(
        0,
        "steps between two checkpoints, beside the one after each epoch; 0: only those "
        "(FastNN save_checkpoints_steps, 1000)",
        lower=0,
    )
    keep_checkpoint_max: int = option(
        5,
        "newest checkpoints kept; 0: all (PLSC 0.2 set_max_last_checkpoint_num)",
        lower=0,
    )
    restart: bool = option(
        False, "start anew, in a fresh folder, instead of resuming", saved=False
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.model_save_dir:
            raise ValueError(
                "model_save_dir must name the folder of the run. Received: "
                "model_save_dir=''."
            )
