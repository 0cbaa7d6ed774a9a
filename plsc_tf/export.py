"""Exports a trained model as a SavedModel for TensorFlow Serving, TFLite or ONNX.

    python -m plsc_tf.export --flagfile=output/flags.cfg
    python -m plsc_tf.export --checkpoint_dir=output --export_dir=serving/face \
        --card=card/card.json --export_formats=saved_model,tflite_int8,onnx
"""

from plsc_tf.options import cli
from plsc_tf.options.settings import Settings

GROUPS = (
    *("dataset", *cli.PIPELINE, *cli.TRAINED_MODEL, "val_targets", "test_batch_size"),
    *("export", "no export_at_end", "require_license"),
)


def main(settings: Settings) -> None:
    """Exports the model and prints a table with the paths of the results."""
    from plsc_tf.jobs.export import export_checkpoint

    cli.print_table(export_checkpoint(settings))


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
