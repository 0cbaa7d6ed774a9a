"""A function that is compiled as two passes."""

import numpy as np
import tensorflow as tf

from plsc_tf.training.two_passes import TwoPasses


def test_the_backward_pass_uses_the_random_numbers_of_the_forward_pass():
    # dy/dx is the mask itself, which neither weights nor batch determine.
    def function(w, x):
        mask = tf.cast(tf.random.uniform([64, 64]) < 0.5, tf.float32)
        return (x * mask * w,), [mask]

    tensors = tf.constant(1.0), tf.ones([64, 64])
    passes = TwoPasses(function, tensors, 1)

    @tf.function
    def run(w, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            (y,), (mask,) = passes(w, x)
        return mask, tape.gradient(y, x)

    mask, of_x = run(*tensors)
    assert 0 < np.mean(mask) < 1
    np.testing.assert_array_equal(of_x, mask)
