"""Matrix products of the head, in float32 or in half precision."""

from __future__ import annotations

import tensorflow as tf

DTYPES = ("float32", "bfloat16", "float16")


def product(
    a: tf.Tensor,
    b: tf.Tensor,
    dtype: str,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> tf.Tensor:
    """a · b, summed in float32 whatever the operands' precision.

    On a GPU the result of half-precision operands stays float32. TensorFlow's CPU
    kernels round it to the operands' type once, after the sum.

    Args:
        a: `[m, k]`, or `[k, m]` with `transpose_a`.
        b: `[k, n]`, or `[n, k]` with `transpose_b`.
        dtype: one of `DTYPES`, the precision of the operands; "float32" leaves them
            as they are, which may also be float64.
        transpose_a: whether to transpose a.
        transpose_b: whether to transpose b.

    Returns:
        `[m, n]` in the type of `a`.
    """
    if dtype == "float32":
        return tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    half_a, half_b = tf.cast(a, dtype), tf.cast(b, dtype)
    if tf.config.list_logical_devices("GPU"):
        return _wide(half_a, half_b, a.dtype, transpose_a, transpose_b)
    half = tf.matmul(half_a, half_b, transpose_a=transpose_a, transpose_b=transpose_b)
    return tf.cast(half, a.dtype)


@tf.function(autograph=False, jit_compile=True)
def _wide(a, b, dtype, transpose_a, transpose_b):
    return tf.raw_ops.BatchMatMulV3(
        x=a, y=b, Tout=dtype, adj_x=transpose_a, adj_y=transpose_b
    )
