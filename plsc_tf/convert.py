r"""Makes shards of any data set: shuffled, equal, with an index and checksums.

    python -m plsc_tf.convert --dataset_name=folder --dataset_dir=photos \
        --output_dir=shards --num_shards=8
    python -m plsc_tf.convert --dataset_name=image_list --dataset_dir=train_data \
        --output_dir=parts --output_format=base64 --seed=1

PLSC's tool, with its own options:

    python -m plsc_tf.convert --data_dir=./dataset --file_list=file_list.txt --nranks=8

Verification pairs as insightface and PLSC read them:

    python -m plsc_tf.convert --pairs=CPLFW/pairs_CPLFW.txt --to=bin --output_dir=bins

If it is interrupted, the same command resumes. The input is never changed.
"""

from plsc_tf.options import cli

GROUPS = ("conversion", "dataset", "no held_back", "image_shape", "seed")


def main(settings):
    """Converts as the settings say and prints a table of the result."""
    if not settings.conversion.is_plsc:
        cli.check_dataset_dir(settings)
    from plsc_tf.jobs import convert

    cli.print_table(convert.convert(settings, GROUPS))


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
