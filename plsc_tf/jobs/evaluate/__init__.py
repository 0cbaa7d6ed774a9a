"""Everything that `python -m plsc_tf.evaluate` can do with a trained model."""
