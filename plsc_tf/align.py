r"""Finds the faces in photographs and cuts them out as networks expect them.

    python -m plsc_tf.align --images=photos --output_dir=faces
    python -m plsc_tf.align --images=photos --output_dir=faces --faces=all \
        --detector=my_module:detect
    python -m plsc_tf.align --images=photos --output_dir=faces \
        --saved_model=output/export --min_quality=0.1

The faces are 112 x 112 pixels, below `faces` as the photographs are below `photos`, so
that `faces` is a data set if `photos` is one. `faces.jsonl` has a line about each
photograph, `faces.png` shows some of each result. To resume, run the same command
again. The photographs are never changed.
"""

from plsc_tf.options import cli

GROUPS = ("alignment", "images", "image_dir", "landmarks", "output_dir")
GROUPS += ("max_megapixels", "saved_model", "min_quality")


def main(settings):
    """Aligns the faces and prints a table of the results."""
    from plsc_tf.jobs import align

    cli.print_table(align.align(settings))


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
