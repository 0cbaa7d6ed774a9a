"""Random bits and samples that are functions of their numbers alone.

Unlike TensorFlow's generators, they give each class its bits without those of the
classes before it, so tiles and replicas do not matter.
"""

import math

import tensorflow as tf

# An odd number with irregular bits (2^32 divided by the golden ratio).
_ODD = 0x9E3779B9
# Rounds of a Feistel network; from 4 on, it cannot be told from a random permutation
# (Luby and Rackoff, SIAM Journal on Computing 17, 1988).
_ROUNDS = 6


def random_bits(
    classes: tf.Tensor, shape: tuple, step: tf.Tensor, seed: int
) -> tf.Tensor:
    """Returns random bits that depend only on class, column, step and seed.

    Args:
        classes: int64 `[rows]` numbers of the classes.
        shape: shape of one row.
        step: int64 scalar.
        seed: an integer.

    Returns:
        uint32 `[rows, *shape]`.
    """
    rows = _hash(tf.cast(classes, tf.uint32) * uint32(_ODD) + _key(step, seed))
    columns = tf.cast(tf.reshape(tf.range(math.prod(shape)), shape), tf.uint32)
    columns = _hash(columns * uint32(_ODD))
    rows = tf.reshape(rows, [-1, *(1 for _ in shape)])
    # Both are mixed already: one product per number costs as much as the update itself.
    return tf.bitwise.bitwise_xor(rows, columns) * uint32(_ODD)


def draw(size: int, count: int, step: tf.Tensor, seed: int) -> tf.Tensor:
    """Draws numbers from [0, count) at random, each at most once.

    They are the first numbers of a random permutation, a Feistel network. It permutes
    the numbers below a power of 2, and is applied again to a result that is too large
    (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). Time and memory
    grow with `size`, not with `count`.

    Args:
        size: how many numbers, at most `count`.
        count: at most 2^32.
        step: int64 scalar; each step draws other numbers.
        seed: an integer.

    Returns:
        int64 `[size]`, in random order.
    """
    bits = (count - 1).bit_length()
    widths, key = [bits - bits // 2, bits // 2], _key(step, seed)

    def permute(number):
        lower = tf.bitwise.bitwise_and(number, uint32(2 ** widths[1] - 1))
        halves = [shifted_right(number, widths[1]), lower]
        for i in range(_ROUNDS):
            mixed = _hash(halves[1 - i % 2] + key + uint32(i * _ODD))
            mixed = tf.bitwise.bitwise_and(mixed, uint32(2 ** widths[i % 2] - 1))
            halves[i % 2] = tf.bitwise.bitwise_xor(halves[i % 2], mixed)
        return halves[0] * uint32(2 ** widths[1]) + halves[1]

    def too_large(number):
        return number > uint32(count - 1)

    (drawn,) = tf.while_loop(
        lambda number: tf.reduce_any(too_large(number)),
        lambda number: (tf.where(too_large(number), permute(number), number),),
        (permute(tf.cast(tf.range(size), tf.uint32)),),
    )
    return tf.cast(drawn, tf.int64)


def uint32(value: int) -> tf.Tensor:
    """Returns an integer modulo 2^32."""
    return tf.constant(value % 2**32, tf.uint32)


def shifted_right(x: tf.Tensor, count: int) -> tf.Tensor:
    """Shifts the bits of uint32 numbers to the right."""
    return tf.bitwise.right_shift(x, uint32(count))


def _key(step, seed):
    return _hash(tf.cast(step, tf.uint32) + uint32(seed * _ODD))


def _hash(x):
    """Mixes the bits of uint32 numbers (Wellons, "lowbias32")."""
    for shift, factor in (16, 0x7FEB352D), (15, 0x846CA68B):
        x = tf.bitwise.bitwise_xor(x, shifted_right(x, shift)) * uint32(factor)
    return tf.bitwise.bitwise_xor(x, shifted_right(x, 16))
