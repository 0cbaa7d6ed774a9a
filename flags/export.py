"""Defines the options for exporting a model."""

import functools

from plsc_tf.flags.option import OptionGroup, option

_at_end = functools.partial(option, applies="export_at_end")


class Export(OptionGroup):
    """Options for export formats and for comparing the exports with the network."""

    export_dir: str = _at_end(
        "",
        "folder for the version folders; empty: <model_save_dir>/export (PLSC)",
    )
    export_at_end: bool = option(True, "export at the end of the training")
    export_normalized: bool = _at_end(False, "export embeddings of length 1")
    export_formats: tuple[str, ...] = _at_end(
        ("saved_model",),
        "saved_model, and further formats; onnx needs the extra [onnx]",
        choices=("saved_model", "tflite", "tflite_float16", "tflite_int8", "onnx"),
    )
    export_classes: int = _at_end(
        0,
        "number of best classes that an additional signature `classify` returns; 0: "
        "no such signature",
        lower=0,
    )
    calibration_images: int = option(
        100,
        "number of training images on which tflite_int8 is calibrated",
        lower=1,
        applies="export_at_end and export_formats=tflite_int8",
    )
    card: str = option(
        "", "card.json of the same checkpoint, to include in the export", saved=False
    )
    proof_images: int = _at_end(
        32,
        "number of images on which the export is compared with the network; 0: noise",
        lower=0,
    )
    proof_pairs: int = _at_end(
        1000,
        "number of pairs of each verification set on which every format is verified; "
        "0: none",
        lower=0,
    )
    float16_cosine: float = option(
        0.999,
        "smallest mean cosine between the embeddings of tflite_float16 and the network",
        within="[-1, 1]",
        applies="export_at_end and export_formats=tflite_float16",
    )
    int8_cosine: float = option(
        0.97,
        "smallest mean cosine between the embeddings of tflite_int8 and the network",
        within="[-1, 1]",
        applies="export_at_end and export_formats=tflite_int8",
    )
    accuracy_loss: float = option(
        0.01,
        "largest difference by which the accuracy of a format may be below the "
        "network's",
        within="[0, 1]",
        applies="export_at_end and proof_pairs",
    )
