"""What tiles must not change: kept logits, compiled or not, fused or deferred."""

import numpy as np
import oracle
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.heads import base, layout
from tests.conformance import head_case
from tests.conformance.head_case import BATCH, EMBEDDING, Case
from tests.conformance.head_matrix import Stepper, check
from tests.marks import slow


@pytest.mark.parametrize(
    ("dtype", "logits_mb", "kept"),
    [
        ("float32", 1024, [7, 7, 7, 7, 7, 2]),
        ("float32", 0, []),
        ("float32", 2.5 * 7 * BATCH * 4e-6, [7, 7]),
        ("bfloat16", 2.5 * 7 * BATCH * 2e-6, [7, 7]),
    ],
)
def test_logits_are_kept_as_far_as_they_are_allowed(dtype, logits_mb, kept):
    strategy = plsc_tf.strategy(1)
    head = plsc_tf.ShardedHead(37, tile_rows=7, logits_mb=logits_mb, dtype=dtype)
    head.build(EMBEDDING, strategy)
    found = {}

    def replica():
        batch = tf.ones([BATCH, EMBEDDING]), tf.zeros([BATCH], tf.int64)
        outcome = head.loss_and_gradients(*batch, tf.ones([BATCH]))
        found.update(outcome.pending)
        return outcome.losses

    tf.function(lambda: strategy.run(replica)).get_concrete_function()
    products = [tile.get("products") for tile in found["tiles"]]
    assert all(value is None for value in products[len(kept) :])
    products = products[: len(kept)]
    assert [p.shape.as_list() for p in products] == [[rows, BATCH] for rows in kept]
    assert all(p.dtype == dtype for p in products)


@pytest.mark.parametrize(
    ("kind", "dtype", "rows", "tiles"),
    [
        # A tile is to hold 8 MB, which are 3906.25 rows of 512 float32 numbers.
        ("CPU", "float32", 5_859, [5_859]),  # one and a half of that is still one tile
        ("CPU", "float32", 80_000, [4_000] * 20),
        # A prime number: two tiles, nearly alike.
        ("CPU", "float32", 7_919, [3_960, 3_959]),
        # Rather than more than 40 tiles, 32 MB; at most 1,600 tiles.
        ("CPU", "bfloat16", 1_000_000, [15_625] * 64),
        ("CPU", "bfloat16", 20_000_000, [15_625] * 1_280),
        # 8 bits: about 1.5 times the 2,048 rows that are worth a compilation.
        ("CPU", "int8", 1_000_000, [3_125] * 320),
        ("CPU", "float8", 20_000_000, [12_500] * 1_600),
        # And 256 MB on a GPU, 125,000 rows, whatever this machine has.
        ("GPU", "float32", 187_500, [187_500]),
        ("GPU", "int8", 1_000_000, [125_000] * 8),
    ],
)
def test_tiles_are_of_the_wanted_size_and_alike(kind, dtype, rows, tiles):
    sizes = {"num_classes": rows, "embedding_size": 512, "replicas": 1}
    head = layout.HeadLayout(**sizes, device_kind=kind, weight_dtype=dtype)
    assert layout.tile_sizes(rows, head.rows_per_tile) == tiles


def test_replicas_on_cpus_have_tiles_of_cpus_beside_a_gpu(monkeypatch):
    strategy = plsc_tf.strategy(1)
    gpu = tf.config.LogicalDevice("/device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [gpu])
    head = plsc_tf.ShardedHead(31_250)
    head.build(128, strategy)
    assert head.layout.rows_per_tile == 15_625


@pytest.mark.parametrize(
    ("case", "options"),
    [
        # The losses whose kernels differ.
        (Case("smoothed_softmax", 1, "recomputed", ranks=True), {"jit_compile": True}),
        (Case("curricularface", 2, "untiled", "positives"), {"jit_compile": True}),
        # With a scale of 16 every logit fits into exp as it is; here they do not.
        # Rounding of a cosine grows with the scale.
        (Case("arcface", 2, "untiled", "positives", scale=128.0), {"tolerance": 5e-5}),
        slow(
            Case("curricularface", 2, "recomputed", "sampled", scale=64.0),
            {"tolerance": 5e-5},
        ),
        (Case("smoothed_arcface", 1, "partly", scale=128.0), {"tolerance": 5e-5}),
        # Replicas differ in their tiles. 37 classes are 13, 12, 12: three tiles of 6
        # and two.
        (Case("softmax", 3, "kept", "all", "global_clipnorm"), {}),
        # 19 and 18: products of 18 classes and a half fit on the second only.
        slow(Case("arcface", 2, "kept"), {"logits_mb": 18.5 * BATCH * 4e-6}),
        # 12 and 11 are sampled for a batch of 12: the first replica knows beforehand.
        (Case("arcface", 2, "kept"), {"sample_rate": 0.64, "tile_rows": 7}),
    ],
    ids=str,
)
def test_a_layout_equals_the_oracle(case, options):
    check(case, **options)


def test_the_kernels_of_gpus_equal_the_oracle(monkeypatch):
    monkeypatch.setattr(base, "device_kind", lambda strategy: "GPU")
    check(Case("smoothed_arcface", 2, "partly", "all", "global_clipnorm", ranks=True))


def test_large_tiles_are_compiled_and_equal_the_oracle():
    stepper = check(Case("arcface", 2, "untiled", "large", "adamw"))
    # `tf.function`s, where small tiles have plain ones.
    compiled = (stepper.head.softmax.kernels.errors, stepper.updater.rules._change)
    kind = tf.types.experimental.PolymorphicFunction
    assert all(isinstance(function, kind) for function in compiled)


@pytest.mark.parametrize(("scale", "m3"), [(24.0, 0.0), (96.0, 0.75)])
def test_gradients_keep_their_digits_when_all_is_learnt(scale, m3):
    # Float32 resolves 6e-8 of 1, float64 1e-16.
    classes, rng = 11, np.random.default_rng(0)
    weight = np.linalg.qr(rng.normal(size=(classes, classes)))[0]
    labels = rng.permutation(classes)
    near = np.float32(weight[labels] + rng.normal(size=(classes, classes)) * 0.02)
    batch = near, labels, np.ones(classes)
    given = {"loss": "cosface", "scale": scale, "m3": m3}
    expected = oracle.head_step(weight, None, *batch, **given)
    loss = plsc_tf.Margins(m3=m3)
    head = plsc_tf.ShardedHead(classes, loss=loss, scale=scale, tile_rows=4)
    strategy = plsc_tf.strategy(1)
    head.build(classes, strategy)
    head.set_weights_from_numpy(weight)

    def replica():
        sample_weights = tf.fill([classes], 1 / classes)
        outcome = head.loss_and_gradients(near, tf.constant(labels), sample_weights)
        return outcome.embedding_gradients

    found = tf.function(lambda: strategy.run(replica))().numpy()
    assert 1e-12 < expected["losses"].min() and expected["losses"].max() < 1e-7
    for own, wanted in zip(found, expected["embedding_gradients"], strict=True):
        head_case.close(own, wanted, 1e-3)


@pytest.mark.parametrize(
    ("dtype", "bits", "kind", "compiled"),
    [
        ("bfloat16", 8, "CPU", False),
        ("bfloat16", 8, "GPU", False),
        ("float16", 11, "GPU", True),
        slow("float16", 11, "CPU", False),
    ],
)
def test_half_precision_is_close_to_float32(dtype, bits, kind, compiled, monkeypatch):
    monkeypatch.setattr(base, "device_kind", lambda strategy: kind)
    case = Case("arcface", 2, "kept")
    example = head_case.make_example(case)
    batch = next(example.batches())
    exact = head_case.Expected(case, example).step(*batch)
    found = Stepper(case, example, dtype=dtype, jit_compile=compiled).step(*batch)
    # A cosine is a product of two rounded operands, and is rounded itself: it is off
    # by up to 3 · 2⁻⁹ with 8 bits, each logit by 16 times that, and so is the
    # logarithm of their sum. Gradients are off by exp of that, to both sides.
    bound = 16 * 3 * 2.0 ** -(bits + 1)
    for name, share in (("losses", bound), ("gradients", np.expm1(2 * bound))):
        size = np.abs(exact[name]).max() if name == "gradients" else 1.0
        assert bound / 100 < np.abs(found[name] - exact[name]).max() / size < share
