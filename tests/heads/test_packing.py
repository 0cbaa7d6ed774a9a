"""Class weights and slots in 16 and 8 bits: their codes, rounding, and steps."""

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.parallel import packing
from plsc_tf.pseudorandom import random_bits
from tests.conformance.head_case import LOSSES, Case, Expected, close, make_example
from tests.conformance.head_matrix import Stepper
from tests.marks import slow


def quanta(rows, dtype):
    """The distance of neighboring codes at each number, by hand."""
    _, exponent = np.frexp(np.abs(rows))  # |x| = m · 2^exponent, m in [0.5, 1)
    if dtype == "bfloat16":  # 8 bits of a mantissa
        return 2.0 ** (exponent - 8)
    largest = {"int8": 127, "float8": 448}[dtype]
    unit = 2.0 ** np.ceil(np.log2(np.abs(rows).max(axis=-1, keepdims=True) / largest))
    if dtype == "int8":
        return unit + 0 * rows
    return np.maximum(2.0 ** (exponent - 4), 2.0**-9 * unit)  # 4 bits of a mantissa


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float8"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_number_becomes_the_nearest_code_and_a_code_stays_the_same(dtype, compiled):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3, 40)) * 2.0 ** rng.integers(-90, 90, (300, 1, 1))
    rows = rows.astype(np.float32)
    pack = tf.function(packing.pack, jit_compile=compiled)
    unpack = tf.function(packing.unpack, jit_compile=compiled)
    stored = pack(rows, packing.DTYPES[dtype])
    assert stored.shape[-1] == 40 + (dtype != "bfloat16")
    numbers = unpack(stored).numpy()
    assert (np.abs(numbers - rows) <= quanta(rows, dtype) / 2).all()
    bits = tf.fill(rows.shape, tf.constant(2**32 - 1, tf.uint32))  # rounds up if it can
    again = pack(numbers, packing.DTYPES[dtype], stored, bits)
    np.testing.assert_array_equal(unpack(again), numbers)


def test_codes_of_float8_are_those_of_e4m3():
    codes = np.setdiff1d(np.arange(256), [0x7F, 0xFF]).astype(np.uint8)  # but for NaN
    stored = np.append(codes, np.uint8(0))[None]
    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(packing.unpack(tf.constant(stored))[0], expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float8"])
def test_updates_of_a_small_part_of_a_quantum_are_not_lost(dtype):
    # Each step adds 2^-12 of a quantum to numbers between two codes. The sum of 10^4
    # steps is 2.44 quanta; it is a sum of 10^4 draws of variance p (1 - p) < 2.44.
    first = {"bfloat16": 1.0, "int8": 64.0, "float8": 256.0}[dtype]
    quantum = {"bfloat16": 2.0**-7, "int8": 1.0, "float8": 32.0}[dtype]
    classes = tf.constant([5, 10**8], tf.int64)
    stored = packing.pack(tf.fill([2, 2048], first), packing.DTYPES[dtype])

    @tf.function(jit_compile=True)
    def run(stored):
        for step in tf.range(10_000, dtype=tf.int64):
            rows = packing.unpack(stored) + quantum * 2.0**-12
            bits = random_bits(classes, (2048,), step, 3)
            stored = packing.pack(rows, stored.dtype, stored, bits)
        return packing.unpack(stored)

    sums = (run(stored).numpy() - first) / quantum
    expected = 10_000 * 2.0**-12
    assert abs(sums.mean() - expected) < 5 * (expected / sums.size) ** 0.5
    assert abs(sums.var() / expected - 1) < 0.2


def test_random_bits_depend_on_class_column_step_and_seed_alone():
    def bits(classes, step=7, seed=3, shape=(4, 8)):
        classes = tf.constant(classes, tf.int64)
        return random_bits(classes, shape, tf.constant(step, tf.int64), seed)

    whole = bits([*range(50), 10**8]).numpy()
    np.testing.assert_array_equal(bits([49, 3, 10**8]), whole[[49, 3, 50]])
    others = [bits([*range(50), 10**8], *key).numpy() for key in ((8, 3), (7, 4))]
    drawn = np.stack([whole, *others])
    assert len(np.unique(drawn)) > drawn.size - 3  # 4,896 draws of 2^32


# (loss, replicas, tiling, sampling, optimizer, type of weights, type of slots); -m slow
# runs each loss with each type of weights.
QUICK = [
    ("arcface", 2, "recomputed", "all", "momentum", "int8", "int8"),
    ("softmax", 3, "kept", "sampled", "nesterov", "float8", "int8"),
    ("adaface", 1, "partly", "positives", "adam", "bfloat16", "bfloat16"),
    ("curricularface", 2, "kept", "large", "momentum", "int8", "float32"),
]
MATRIX = [
    slow(loss, 1 + n % 3, tiling, sampling, optimizer, weights, slots)
    for n, (loss, (weights, optimizer, slots), sampling, tiling) in enumerate(
        (loss, kind, sampling, tiling)
        for loss in LOSSES
        for kind in (
            ("int8", "momentum", "int8"),
            ("float8", "nesterov", "bfloat16"),
            ("bfloat16", "adam", "bfloat16"),
        )
        for sampling, tiling in (("all", "kept"), ("sampled", "recomputed"))
        if sampling == "all" or not loss.startswith("smoothed")
    )
]


@pytest.mark.parametrize(
    ("loss", "replicas", "tiling", "sampling", "optimizer", "weights", "slots"),
    QUICK + MATRIX,
)
def test_a_step_agrees_with_the_oracle_to_a_quantum(
    loss, replicas, tiling, sampling, optimizer, weights, slots
):
    case = Case(loss, replicas, tiling, sampling, optimizer, False, True)
    example = make_example(case)
    stored = packing.pack(tf.cast(example.weight, tf.float32), packing.DTYPES[weights])
    example.weight[:] = packing.unpack(stored)
    stepper = Stepper(case, example, slots, weight_dtype=weights)
    expected = Expected(case, example)
    batch = next(iter(example.batches()))
    found = stepper.step(*batch)
    wanted = expected.step(*batch, found.get("sampled"))
    close(found["losses"], wanted["losses"], 1e-5)
    close(found["gradients"], wanted["gradients"], 1e-5)
    np.testing.assert_array_equal(found["ranks"], wanted["ranks"])
    rows = expected.weights["weight"]
    # The exponent of a row may be that of the row before, which is one larger.
    most = 2 if packing.is_packed(packing.DTYPES[weights]) else 1
    distance = np.abs(stepper.weights()["weight"] - rows)
    assert (distance <= most * quanta(rows, weights) + 1e-5).all()
    assert (distance > 1e-4).mean() > 0.1  # they are rounded
    for name, slot in stepper.updater.slots().items():
        narrow = slots != "float32" and "bias" not in name
        value = expected.whole_slots()[name]
        error = quanta(value, slots) if narrow else 0
        distance = np.abs(slot.read(0, slot.shape[0]) - value)
        assert (distance <= error + 1e-5 * np.abs(value).max()).all(), name


def test_8_bits_for_a_slot_that_divides_is_an_error():
    with plsc_tf.strategy(1).scope():
        backbone = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
        model = plsc_tf.Classifier(backbone, plsc_tf.ShardedHead(5))
        words = "not for Adam, which divides by 'velocity'"
        with pytest.raises(ValueError, match=words):
            model.compile(keras.optimizers.Adam(), head_slot_dtype="int8")
        model.compile(keras.optimizers.Lion(), head_slot_dtype="int8")


def test_an_array_of_codes_becomes_weights_of_8_bits():
    head = plsc_tf.ShardedHead(5, weight_dtype="int8")
    head.build(4, plsc_tf.strategy(1))
    rows = np.arange(20, dtype=np.int8).reshape(5, 4)
    head.set_weights_from_numpy(rows)
    np.testing.assert_array_equal(head.weights_as_numpy(), rows)
