"""A training step stays on its GPU: no value is copied to the host on the way."""

import contextlib
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from benchmarks.gpu.kernels import Fault, faults
from plsc_tf.boost import reduced_step, trajectory
from plsc_tf.flags.boost import Boost
from plsc_tf.heads.adaptive_margins import ADAFACE, CURRICULARFACE
from plsc_tf.training import batching
from plsc_tf.training.auxiliary import Auxiliary
from plsc_tf.training.average import Averaging
from tests.conformance.head_case import LOSSES, SMOOTHED
from tests.training.test_auxiliary import small_zoo  # noqa: F401 - a fixture

BATCH, CLASSES = 8, 40
# XLA compiles the passes over tiles of this many classes.
MANY = 5000


@pytest.fixture(autouse=True)
def as_on_gpus(monkeypatch):
    """Replicas are logical CPU devices, but the library does what it does on GPUs."""
    for module in ("heads.base", "training.forward", "parallel.collectives"):
        monkeypatch.setattr(f"plsc_tf.{module}.device_kind", lambda strategy: "GPU")


@functools.cache
def on(replicas):
    """A strategy with collectives, as for GPUs; CPU:0 is left to be the host."""
    return tf.distribute.MirroredStrategy([f"CPU:{i + 1}" for i in range(replicas)])


def network(dtype="float32"):
    small = {"depths": (1,), "width": 8, "image_shape": (16, 16, 3), "dropout": 0.1}
    return plsc_tf.backbones.build("iresnet", embedding_size=8, dtype=dtype, **small)


def plain_network(change=lambda x: x):
    """One product of the pixels, after a change."""
    image = keras.Input((16, 16, 3))
    features = keras.layers.Lambda(change)(keras.layers.Flatten()(image))
    return keras.Model(image, keras.layers.Dense(8)(features))


def make_model(head, *, replicas=2, backbone=network, auxiliary=False, clip=None):
    """A `Classifier` and its optimizer."""
    keras.utils.set_random_seed(0)
    with on(replicas).scope():
        built = backbone()
        branch = Auxiliary(built, CLASSES) if auxiliary else None
        model = plsc_tf.Classifier(built, head, auxiliary=branch)
        return model, plsc_tf.Momentum(0.1, l2=0.1, global_clipnorm=clip)


def make_batch(model):
    size = (BATCH, *model.image_size, 3)
    labels, ones = tf.zeros([BATCH], tf.int64), tf.ones([BATCH])
    return batching.split(model.strategy, (tf.zeros(size, tf.uint8), labels, ones))


class Ended(Exception):
    """Raised instead of running a traced function."""


@contextlib.contextmanager
def traced(run):
    """Keeps the traces of the functions that are made and called in the block.

    Args:
        run: whether to run them; otherwise, the block ends with the first call.
    """
    make, found = tf.function, []

    class Kept:
        def __init__(self, function):
            self.function = function

        def __getattr__(self, name):
            return getattr(self.function, name)

        def __call__(self, *arguments):
            if tf.executing_eagerly():
                found.append(self.function.get_concrete_function(*arguments))
                if not run:
                    raise Ended
            return self.function(*arguments)

    def function(body=None, **options):
        made = make(body, **options)
        return made if body is None else Kept(made)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Ended):
        patch.setattr(tf, "function", function)
        yield found


def faults_of_step(loss, *, head=None, scaled=False, of_model=None, **compiled):
    """Traces a step; returns its faults."""
    options = {"num_classes": CLASSES, "loss": loss, **(head or {})}
    model, optimizer = make_model(plsc_tf.ShardedHead(**options), **(of_model or {}))
    with model.strategy.scope():
        scale = plsc_tf.LossScale(8.0) if scaled else None
    compiled = {"jit_compile": False, **compiled}
    with traced(run=False) as functions:
        model.compile(optimizer, loss_scale=scale, **compiled)
        model.trainer.run_step(make_batch(model))
    [step] = functions
    return faults(step)


def faults_of_stage_2(folder):
    """Runs a step of stage 2, which consists of four functions."""
    model, optimizer = make_model(plsc_tf.ShardedHead(CLASSES), backbone=plain_network)
    whole = trajectory.layout_of(model, "all")
    matrix = np.random.default_rng(0).standard_normal((2, whole.size), np.float32)
    path, options = str(folder / "pca_mat.npy"), Boost(line_search_trials=1)
    np.save(path, matrix / np.linalg.norm(matrix))
    plan = reduced_step.ReductionPlan(projection=path, layout=whole, options=options)
    updater = functools.partial(reduced_step.ReducedUpdater, plan=plan)
    model.trainer.updater_class = updater
    model.compile(optimizer, jit_compile=False)
    with traced(run=True) as functions:
        reduced_step.ReducedStepper(model, plan).step(make_batch(model))
    assert len(functions) == 4
    return {fault: at for one in functions for fault, at in faults(one).items()}


# {fault: why it does no harm}.
EXCEPTIONS = {
    Fault("If", "bool", "cond"): "the update's flag, where XLA does not compile it",
    Fault("StatelessRandomGetKeyCounter", "int32", "seed"): "8 bytes, dropout's key",
    Fault("Cast", "int64", "x"): "8 bytes, the step in the key of Partial FC's sample",
}
# Few traces, with everything that a step may have.
STEPS = {
    "accumulation, ranks": lambda folder: faults_of_step(
        CURRICULARFACE,
        of_model={"replicas": 1},
        metrics=["accuracy"],
        gradient_accumulation_steps=2,
    ),
    "averages, XLA": lambda folder: faults_of_step(
        ADAFACE,
        head={"num_classes": MANY},
        of_model={"replicas": 1},
        averaging=Averaging(0.9),
        jit_compile=True,
    ),
    "Partial FC, bfloat16, clipping": lambda folder: faults_of_step(
        plsc_tf.SOFTMAX,
        head={"num_classes": 400, "sample_rate": 0.5, "dtype": "bfloat16"},
        of_model={"backbone": lambda: network("bfloat16"), "clip": 1.0},
    ),
    "auxiliary logits, float16": lambda folder: faults_of_step(
        plsc_tf.ARCFACE,
        scaled=True,
        of_model={
            "backbone": lambda: plsc_tf.backbones.build("lenet", dtype="float16"),
            "auxiliary": True,
        },
    ),
    "stage 2": faults_of_stage_2,
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_stays_on_its_gpu(name, small_zoo, tmp_path):  # noqa: F811
    found = STEPS[name](tmp_path)
    allowed = {} if "XLA" in name else EXCEPTIONS
    assert {f: places for f, places in found.items() if f not in allowed} == {}


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("classes", [CLASSES, MANY])
@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_stays_on_its_gpu(loss, rate, classes, replicas):
    if rate < 1 and loss in SMOOTHED:
        pytest.skip("refused under Partial FC")
    options = {**LOSSES[loss][0], "num_classes": classes, "sample_rate": rate}
    found = faults_of_step(
        options.pop("loss"), head=options, of_model={"replicas": replicas}
    )
    assert set(found) <= set(EXCEPTIONS)


def test_an_int32_addition_on_the_way_is_found():
    def add(x):
        return tf.cast(tf.cast(x, tf.int32) + 1, x.dtype)

    of_model = {"backbone": lambda: plain_network(add), "replicas": 1}
    found = faults_of_step(plsc_tf.ARCFACE, of_model=of_model)
    assert Fault("AddV2", "int32", "x") in found


def test_operations_without_a_kernel_and_copies_are_found():
    @tf.function(autograph=False)
    def step(images, table):
        rows = tf.cast(tf.split(images, 2)[0][:, 0], tf.int32)
        size = tf.shape(images)[0] + 1  # of shapes only: stays on the host
        return tf.reshape(table, [size, -1]), tf.gather(table, rows)

    traced = step.get_concrete_function(
        tf.TensorSpec([4, 3], tf.uint8), tf.TensorSpec([None], tf.float32)
    )
    expected = {Fault("Split", "int32,uint8"), Fault("Split", "uint8", "value")}
    assert set(faults(traced)) == expected
