r"""Converts a data set to shuffled shards of equal size, with an index and checksums.

    python -m plsc_tf.convert --dataset_name=folder --dataset_dir=photos \
        --output_dir=shards --num_shards=8
    python -m plsc_tf.convert --dataset_name=image_list --dataset_dir=train_data \
        --output_dir=parts --output_format=base64 --seed=1

The options of PLSC's tool work too:

    python -m plsc_tf.convert --data_dir=./dataset --file_list=file_list.txt --nranks=8

This converts verification pairs to the format that insightface and PLSC read:

    python -m plsc_tf.convert --pairs=CPLFW/pairs_CPLFW.txt --to=bin --output_dir=bins

To resume an interrupted conversion, run the same command again. The input is never
changed.
"""

from plsc_tf.options import cli

GROUPS = ("conversion", "dataset", "no held_back", "image_shape", "seed")
GROUPS += ("max_megapixels", "image_dir", "provenance", "no require_license")


def main(settings):
    """Converts the data set and prints a table of the results."""
    if not settings.conversion.nranks:
        cli.check_dataset_dir(settings)
    from plsc_tf.jobs import convert

    cli.print_table(convert.convert(settings))


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
