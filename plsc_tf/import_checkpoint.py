r"""Imports a checkpoint of PLSC 0.1 / 0.2 or arcface_torch, or an ONNX file.

    python -m plsc_tf.import_checkpoint --import_from=work_dirs/ms1mv3_r50 \
        --num_classes=93431 --checkpoint_dir=imported
    python -m plsc_tf.import_checkpoint --import_from=w600k_r50.onnx \
        --checkpoint_dir=imported
    python -m plsc_tf.train --checkpoint_dir=imported ...

The new checkpoint contains the weights of the backbone and the head. Pass its folder to
evaluate, export and train as checkpoint_dir. It is written to checkpoint_dir or, if
that is not set, to a folder in model_save_dir. Nothing is overwritten.
"""

from plsc_tf.options import cli

GROUPS = (
    *("importing", "dataset", "preprocessing_name", "image_shape", "model_name"),
    *("emb_size", "dropout", "model_options", "head", "model_save_dir"),
    *("checkpoint_dir", "provenance"),
)


def main(settings):
    """Imports the checkpoint and prints a table of its contents."""
    from plsc_tf.jobs import import_checkpoint

    cli.print_table(import_checkpoint.import_checkpoint(settings))


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
