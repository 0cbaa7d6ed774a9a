"""The exported model."""

import dataclasses

from plsc_tf.options import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Serving(OptionGroup):
    """The SavedModel for TensorFlow Serving."""

    export_dir: str = option(
        "",
        "folder that gets the version folders 1, 2, ...; empty: "
        "<model_save_dir>/export (PLSC convert_for_prediction)",
    )
    export_at_end: bool = option(True, "export when the training ends")
    export_normalized: bool = option(
        False, "the exported model returns embeddings of length 1"
    )
