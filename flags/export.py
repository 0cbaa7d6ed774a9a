"""Defines the options for exporting a model."""

from plsc_tf.flags.option import Count, OptionGroup, Positive, option, option_if

_at_end = option_if("export_at_end")
_int8 = option_if("export_at_end and export_formats=tflite_int8")


class Export(OptionGroup):
    """Options for export formats and for comparing the exports with the network."""

    export_dir: str = _at_end(
        "", "folder for version folders; empty: <model_save_dir>/export (PLSC)"
    )
    export_at_end: bool = option(True, "export at the end of the training")
    export_normalized: bool = _at_end(False, "export embeddings of length 1")
    export_formats: tuple[str, ...] = _at_end(
        ("saved_model",),
        "saved_model, and further formats; onnx needs the extra [onnx]",
        choices="saved_model tflite tflite_float16 tflite_int8 onnx",
    )
    export_classes: Count = _at_end(
        0, "best classes in the signature `classify`; 0: no such signature"
    )
    calibration_images: Positive = _int8(100, "training images to calibrate on")
    card: str = option("", "card.json of the same checkpoint, to include", saved=False)
    proof_pairs: Count = _at_end(
        1000, "pairs of each verification set for verifying formats; 0: none"
    )
    accuracy_loss: float = option(
        0.01,
        "largest loss of accuracy of a format, compared with the network",
        within="[0, 1]",
        applies="export_at_end and proof_pairs",
    )
