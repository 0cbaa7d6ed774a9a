"""Checkpoints of other libraries."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Importing(OptionGroup):
    """What `python -m plsc_tf.import_checkpoint` reads."""

    import_from: str = option(
        "",
        "folder or file of the checkpoint to import, on a local disk",
        saved=False,
    )
    import_format: str = option(
        "auto",
        "arcface_torch (IResNet and Partial FC; takes the extra [torch]), plsc (0.1 "
        "and 0.2), or auto: found out from the files",
        choices=("auto", "arcface_torch", "plsc"),
        saved=False,
    )
