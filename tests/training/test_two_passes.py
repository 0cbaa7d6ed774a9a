"""The gradients of functions that are compiled as two passes."""

import numpy as np
import tensorflow as tf

from plsc_tf.training.two_passes import TwoPasses

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], np.float32)
W = np.array([[1.0, 0.5], [-0.25, 2.0], [0.75, -1.0]], np.float32)


def gradients(function, *tensors, num_weights=1):
    """Results, and gradients of the sum of the squares of the first one."""
    passes = TwoPasses(function, tensors, num_weights)

    @tf.function
    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch([t for t in tensors if t.dtype.is_floating])
            results = passes(*tensors)
            loss = tf.reduce_sum(results[0][0] ** 2)
        return results, tape.gradient(loss, tensors)

    return run(*tensors)


def test_results_and_gradients_of_weights_and_batch():
    # y = tanh(x w), and what has no gradient: a count, and None.
    def function(w, unused, x):
        y = tf.tanh(x @ w)
        return (y, None), [tf.math.count_nonzero(y > 0), None, 2.0 * unused]

    tensors = tf.constant(W), tf.constant([3.0]), tf.constant(X)
    ((y, nothing), others), found = gradients(function, *tensors, num_weights=2)
    expected = np.tanh(X.astype(float) @ W)
    upstream = 2 * expected * (1 - expected**2)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    assert nothing is None
    assert others[0] == (expected > 0).sum()
    assert others[1] is None
    np.testing.assert_array_equal(others[2], [6.0])
    np.testing.assert_allclose(found[0], X.T @ upstream, rtol=1e-5)
    assert found[1] is None
    np.testing.assert_allclose(found[2], upstream @ W.T, rtol=1e-5)


def test_the_backward_pass_uses_the_random_numbers_of_the_forward_pass():
    # dy/dx is the mask itself, which neither weights nor batch determine.
    def function(w, x):
        mask = tf.cast(tf.random.uniform([64, 64]) < 0.5, tf.float32)
        return (x * mask * w,), [mask]

    ones = tf.ones([64, 64])
    (_, (mask,)), (_, of_x) = gradients(function, tf.constant(1.0), ones)
    assert 0 < np.mean(mask) < 1
    np.testing.assert_array_equal(of_x, 2 * mask)
