"""PLSC's package of models; networks live in `plsc_tf.backbones`."""
