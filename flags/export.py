"""The exported model: formats, and the comparison with the network."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Export(OptionGroup):
    """The SavedModel for TensorFlow Serving, other formats, and their proof."""

    export_dir: str = option(
        "",
        "folder of the version folders 1, 2, ...; empty: <model_save_dir>/export (PLSC "
        "convert_for_prediction)",
        applies="export_at_end",
    )
    export_at_end: bool = option(True, "export when the training ends")
    export_normalized: bool = option(
        False,
        "the exported model returns embeddings of length 1",
        applies="export_at_end",
    )
    export_formats: tuple[str, ...] = option(
        ("saved_model",),
        "saved_model, and more formats to write into its assets.extra/: tflite, "
        "tflite_float16, tflite_int8, onnx (pip install 'plsc_tf[onnx]')",
        choices=("saved_model", "tflite", "tflite_float16", "tflite_int8", "onnx"),
        applies="export_at_end",
    )
    export_classes: int = option(
        0,
        "add a signature `classify` that returns this many best classes of an image, "
        "with their probabilities; 0: none",
        lower=0,
        applies="export_at_end",
    )
    calibration_images: int = option(
        100,
        "training images that tflite_int8 is calibrated on",
        lower=1,
        applies="export_at_end and export_formats=tflite_int8",
    )
    card: str = option(
        "",
        "card.json of the same checkpoint, from plsc_tf.evaluate --card_dir: the "
        "export holds it and its threshold",
        saved=False,
    )
    proof_images: int = option(
        32,
        "images of the first verification set on which the export is compared with "
        "the network; 0: noise",
        lower=0,
        applies="export_at_end",
    )
    proof_pairs: int = option(
        1000,
        "pairs of each verification set on which every format is verified; 0: none",
        lower=0,
        applies="export_at_end",
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
        "how far a format's verification accuracy may be below the network's",
        within="[0, 1]",
        applies="export_at_end and proof_pairs",
    )
