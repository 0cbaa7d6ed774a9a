"""Checkpoints of other libraries."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Importing(OptionGroup, saved=False):
    """The input of `python -m plsc_tf.import_checkpoint`."""

    import_from: str = option(
        "", "folder or file of the checkpoint to import, on a local disk"
    )
    import_format: str = option(
        "auto",
        "arcface_torch (IResNet and Partial FC; needs the extra [torch]), plsc (0.1 "
        "and 0.2), or auto: recognized by the files",
        choices=("auto", "arcface_torch", "plsc"),
    )
