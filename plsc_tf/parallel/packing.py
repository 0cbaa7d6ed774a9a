"""Stores float32 rows in 16 or 8 bits, with stochastic rounding.

A bfloat16 row is a cast. A row of 8 bits has one code per number, and a last byte e:
each code stands for a number times 2^e. Since the factor is a power of two, a row that
is unpacked and packed again does not change. "int8" codes are whole numbers (tf.int8),
"float8" codes are e4m3 numbers (tf.uint8; Micikevicius et al., arXiv:2209.05433).

Stochastic rounding rounds up with a probability equal to the distance from the code
below, so that updates smaller than a quantum are not lost on average (Gupta et al.,
arXiv:1502.02551).
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from plsc_tf.graphs import with_xla
from plsc_tf.pseudorandom import shifted_right, uint32

# {value of an option: dtype of the variable}; the dtype determines the packing. None is
# Keras's float type, in which everything is computed.
DTYPES = {"float32": None, "bfloat16": tf.bfloat16, "int8": tf.int8, "float8": tf.uint8}
# The largest number of each code.
_LARGEST = {tf.int8: 127.0, tf.uint8: 448.0}
# A row's exponent falls only if its largest number is below this share of the largest
# code. At 0.5, a row near the border would be rounded to another grid in every step.
_FALL = 0.44
# float32: bits of the mantissa, and bias of the exponent.
_MANTISSA, _BIAS = 23, 127
# e4m3: numbers per power of two, and the exponent of the smallest quantum.
_STEPS, _SMALLEST = 8, -9
# The exponents of float32 numbers that have a leading 1 begin here.
_LOWEST = -126
# Packing so many numbers takes longer than compiling the function.
_MANY = 1 << 20
# A maximum of so few numbers takes no time.
_SHORT = 16


def is_packed(dtype: tf.DType | None) -> bool:
    """Returns whether rows of this dtype end with an exponent."""
    return dtype in _LARGEST


def describe(shape: Sequence[int], dtype: str) -> dict:
    """Returns shape and dtype of stored rows as a checkpoint's manifest lists them."""
    stored = tf.as_dtype(dtype)
    names = {value: name for name, value in DTYPES.items()}
    name = names[stored] if is_packed(stored) else stored.name
    return {"shape": list(unpacked(shape, stored)[0]), "dtype": name}


def unpacked(shape: Sequence[int], dtype: tf.DType) -> tuple[tuple, tf.DType]:
    """Returns shape and dtype of unpacked rows from those of the stored ones."""
    if not is_packed(dtype):
        return tuple(shape), dtype
    return (*shape[:-1], shape[-1] - 1), tf.float32


def unpack(stored: tf.Tensor) -> tf.Tensor:
    """Returns rows in float32, `[..., size]`; rows of other float types as they are.

    Args:
        stored: the result of `pack`.
    """
    if stored.dtype == tf.bfloat16:
        return tf.cast(stored, tf.float32)
    if not is_packed(stored.dtype):
        return stored
    codes, exponent = stored[..., :-1], _exponent(stored)
    if stored.dtype == tf.int8:
        return tf.cast(codes, tf.float32) * _power(exponent)
    # An e4m3 number has the bits of a float16 number that is 2^8 times smaller.
    codes = tf.cast(codes, tf.int32)
    bits = tf.cast(codes * 2**7 + codes // 128 * 2**14, tf.uint16)
    return tf.cast(tf.bitcast(bits, tf.float16), tf.float32) * 2.0**8 * _power(exponent)


def unpacker(dtype: tf.DType | None, compiled: bool) -> Callable:
    """Returns `unpack` for rows of a dtype, compiled by XLA if that saves a copy."""
    return with_xla(unpack, compiled and is_packed(dtype))


def pack(
    rows: tf.Tensor,
    dtype: tf.DType,
    previous: tf.Tensor | None = None,
    bits: tf.Tensor | None = None,
) -> tf.Tensor:
    """Stores rows in another dtype.

    Args:
        rows: `[..., size]` of any float type, or rows that are stored so already.
        dtype: one of `DTYPES`, or another float type.
        previous: the stored rows that these replace, whose exponents are kept if they
            fit; None chooses the smallest exponents.
        bits: uint32, random bits for each number; None rounds to the nearest.

    Returns:
        `[..., size]`; with `is_packed(dtype)`, `[..., size + 1]`.
    """
    if rows.dtype == dtype:
        return rows
    if not is_packed(dtype):
        if bits is not None and dtype == tf.bfloat16:
            # bfloat16 has the upper 16 bits of float32.
            rows = tf.bitcast(rows, tf.uint32) + shifted_right(bits, 16)
            rows = tf.bitcast(shifted_right(rows, 16) * uint32(2**16), tf.float32)
        return tf.cast(rows, dtype)
    rows = tf.cast(rows, tf.float32)
    largest = _row_maximum(tf.abs(rows))
    exponent = _ceil_log2(largest / _LARGEST[dtype])
    if previous is not None:
        before = _exponent(previous)
        low = largest >= _FALL * _LARGEST[dtype] * _power(before)
        exponent = tf.where(low & (exponent < before), before, exponent)
    scaled = rows * _power(-exponent)
    scaled = tf.clip_by_value(scaled, -_LARGEST[dtype], _LARGEST[dtype])
    if dtype == tf.int8:
        codes = _rounded(scaled, bits)
    else:
        place = tf.maximum(_floor_log2(scaled) - 3, _SMALLEST)
        steps = _rounded(scaled * _power(-place), bits)
        codes = _STEPS * (place - _SMALLEST) + tf.abs(steps)
        codes = tf.where(steps < 0, codes + 128, codes)
    codes = tf.cast(codes, dtype)
    return tf.concat([codes, tf.bitcast(tf.cast(exponent, tf.int8), dtype)], axis=-1)


_compiled_pack = with_xla(pack)


def stored(rows: tf.Tensor, dtype: tf.DType | None) -> tf.Tensor:
    """Returns new rows in the dtype of their variables, see `DTYPES`.

    Rows of one number, such as biases, and those for None stay as they are.
    """
    if dtype is None or rows.shape.rank == 1:
        return rows
    compiled = is_packed(dtype) and rows.shape.num_elements() >= _MANY
    return _compiled_pack(rows, dtype) if compiled else pack(rows, dtype)


def _rounded(values, bits):
    """Rounds numbers up to 127 to whole ones, int32: at random, or to the nearest."""
    # Fixed-point numbers with 24 bits after the point: 127 and all bits fit.
    fixed = tf.cast(values * 2.0**24, tf.int32)
    more = 2**23 if bits is None else tf.bitcast(shifted_right(bits, 8), tf.int32)
    return tf.bitwise.right_shift(fixed + more, tf.constant(24))


def _row_maximum(values):
    """Returns the maximum of each row, `[..., 1]`."""
    # XLA's maximum over the last axis is a scalar loop; halving the rows is vectorized.
    while values.shape[-1] % 2 == 0 and values.shape[-1] > _SHORT:
        half = values.shape[-1] // 2
        values = tf.maximum(values[..., :half], values[..., half:])
    return tf.reduce_max(values, axis=-1, keepdims=True)


def _exponent(stored):
    """Returns the exponents of packed rows, int32 `[..., 1]`."""
    return tf.cast(tf.bitcast(stored[..., -1:], tf.int8), tf.int32)


def _power(exponent):
    """Returns 2^exponent for int32 exponents from -126 to 127."""
    return tf.bitcast((exponent + _BIAS) * 2**_MANTISSA, tf.float32)


def _floor_log2(values):
    """Returns int32 floor(log2 |x|); -126 for smaller numbers and 0."""
    bits = shifted_right(tf.bitcast(tf.abs(values), tf.uint32), _MANTISSA)
    return tf.maximum(tf.cast(bits, tf.int32) - _BIAS, _LOWEST)


def _ceil_log2(values):
    """Returns int32 ceil(log2 x), at least -126 and at most 126, for x >= 0."""
    floor = _floor_log2(values)
    return tf.minimum(tf.where(values > _power(floor), floor + 1, floor), -_LOWEST)
