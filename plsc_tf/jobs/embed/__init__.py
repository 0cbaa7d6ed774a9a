"""The implementation of `python -m plsc_tf.embed`."""
