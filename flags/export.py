"""The exported model."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Export(OptionGroup):
    """The SavedModel for TensorFlow Serving, other formats, and their proof."""

    export_dir: str = option(
        "",
        "folder that gets the version folders 1, 2, ...; empty: "
        "<model_save_dir>/export (PLSC convert_for_prediction)",
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
        "saved_model, and what else to write into its assets.extra/: tflite, "
        "tflite_float16, tflite_int8, onnx (pip install 'plsc_tf[onnx]')",
        choices=("saved_model", "tflite", "tflite_float16", "tflite_int8", "onnx"),
        applies="export_at_end",
    )
    export_classes: int = option(
        0,
        "adds a signature `classify` that tells so many best classes of a picture, "
        "with their probabilities; 0: none",
        lower=0,
        applies="export_at_end",
    )
    calibration_images: int = option(
        100,
        "training pictures that tflite_int8 is calibrated on",
        lower=1,
        applies="export_at_end and export_formats=tflite_int8",
    )
    card: str = option(
        "",
        "card.json of the same checkpoint, as plsc_tf.evaluate --card_dir writes it: "
        "the export carries it and its threshold",
        saved=False,
    )
    proof_images: int = option(
        32,
        "pictures of the first verification set that the export is compared with the "
        "network on; 0: noise",
        lower=0,
        applies="export_at_end",
    )
    proof_pairs: int = option(
        1000,
        "pairs of each verification set that every format is verified on; 0: none",
        lower=0,
        applies="export_at_end",
    )
    float16_cosine: float = option(
        0.999,
        "smallest mean cosine to the network's embeddings that tflite_float16 may have",
        lower=-1,
        upper=1,
        applies="export_at_end and export_formats=tflite_float16",
    )
    int8_cosine: float = option(
        0.97,
        "smallest mean cosine to the network's embeddings that tflite_int8 may have",
        lower=-1,
        upper=1,
        applies="export_at_end and export_formats=tflite_int8",
    )
    accuracy_loss: float = option(
        0.01,
        "by how much the verification accuracy of a format may be less than the "
        "network's",
        lower=0,
        upper=1,
        applies="export_at_end and proof_pairs",
    )
