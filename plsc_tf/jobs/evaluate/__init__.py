"""The evaluations that `python -m plsc_tf.evaluate` runs."""
