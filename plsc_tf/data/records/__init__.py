"""Records as bytes: framing, parsing and writing, without tf.data."""
