r"""Evaluates verification, templates, identification and classification of a model.

    python -m plsc_tf.evaluate --flagfile=output/flags.cfg
    python -m plsc_tf.evaluate --checkpoint_dir=output --dataset_dir=train_data \
        --val_targets=lfw,agedb_30 --card_dir=card
    python -m plsc_tf.evaluate --checkpoint_dir=output --template_dirs=IJBC
    python -m plsc_tf.evaluate --saved_model=w600k_r50.onnx --dataset_dir=train_data
    python -m plsc_tf.evaluate --embeddings=faces.npy --gallery=known.txt \
        --probes=unknown.txt
    python -m plsc_tf.evaluate --embeddings=faces.npy --identities=ids.txt \
        --protocol=all_pairs
    python -m plsc_tf.evaluate --reproduce=card/card.json
"""

from plsc_tf.options import cli

GROUPS = (
    *("dataset", *cli.PIPELINE, *cli.TRAINED_MODEL, "val_targets", "test_batch_size"),
    *("cluster", "no step_timeout", "no gradient_bucket_mb", "no gradient_dtype"),
    *("scoring", "image_dir", "saved_model", "flip"),
)


def main(settings):
    """Evaluates the model and prints a table of the results, only on the chief."""
    from plsc_tf.jobs.evaluate import command, reproduce

    again = settings.scoring.reproduce
    cli.print_table((reproduce.reproduce if again else command.evaluate)(settings))


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
