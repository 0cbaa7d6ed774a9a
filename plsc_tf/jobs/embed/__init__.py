"""Everything that `python -m plsc_tf.embed` does."""
