r"""Embeds a folder or list of images; writes a .npy file and a list of the names.

    python -m plsc_tf.embed --checkpoint_dir=output --images=photos --output=faces.npy
    python -m plsc_tf.embed --checkpoint_dir=output --images=photos \
        --detect=mtcnn --output=faces.npy
    python -m plsc_tf.embed --saved_model=output/export --images=list.txt \
        --image_dir=photos --output=faces.npy

`python -m plsc_tf.evaluate --embeddings=faces.npy` reads both files.
"""

from plsc_tf.options import cli
from plsc_tf.options.settings import Settings

GROUPS = (
    *("embedding", "dataset_name", "skip_bad_records", *cli.TRAINED_MODEL, "no seed"),
    *("cluster_node_ips", "node_ip", "task_index", "cluster_resolver"),
    *("test_batch_size", "detect"),
)


def main(settings: Settings) -> None:
    """Embeds the images and prints a table of the results."""
    from plsc_tf.jobs.embed.command import embed

    cli.print_table(embed(settings))


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
