"""The exported model: formats, and the comparison with the network."""

import functools

from plsc_tf.flags.option import OptionGroup, option

_at_end = functools.partial(option, applies="export_at_end")


class Export(OptionGroup):
    """The SavedModel for TensorFlow Serving, other formats, and their proof."""

    export_dir: str = _at_end(
        "",
        "folder of versions; empty: <model_save_dir>/export (PLSC)",
    )
    export_at_end: bool = option(True, "export when the training ends")
    export_normalized: bool = _at_end(False, "export embeddings of length 1")
    export_formats: tuple[str, ...] = _at_end(
        ("saved_model",),
        "saved_model, and formats to add to it; onnx needs the extra [onnx]",
        choices=("saved_model", "tflite", "tflite_float16", "tflite_int8", "onnx"),
    )
    export_classes: int = _at_end(
        0,
        "best classes that an added signature `classify` returns; 0: none",
        lower=0,
    )
    calibration_images: int = option(
        100,
        "training images that tflite_int8 is calibrated on",
        lower=1,
        applies="export_at_end and export_formats=tflite_int8",
    )
    card: str = option(
        "", "card.json of the same checkpoint, to export with the model", saved=False
    )
    proof_images: int = _at_end(
        32,
        "images on which the export is compared with the network; 0: noise",
        lower=0,
    )
    proof_pairs: int = _at_end(
        1000,
        "pairs of each verification set on which every format is verified; 0: none",
        lower=0,
    )
    float16_cosine: float = option(
        0.999,
        "lowest mean cosine of tflite_float16's embeddings to the network's",
        within="[-1, 1]",
        applies="export_at_end and export_formats=tflite_float16",
    )
    int8_cosine: float = option(
        0.97,
        "lowest mean cosine of tflite_int8's embeddings to the network's",
        within="[-1, 1]",
        applies="export_at_end and export_formats=tflite_int8",
    )
    accuracy_loss: float = option(
        0.01,
        "how far a format's accuracy may be below the network's",
        within="[0, 1]",
        applies="export_at_end and proof_pairs",
    )
