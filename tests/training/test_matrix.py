"""Every optimizer with every schedule: no NaN, and the rates of the formula."""

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.jobs.builders import optimizers
from plsc_tf.options.settings import Settings
from plsc_tf.training import schedules

STEPS, RATE = 50, 0.05
T = np.arange(STEPS)
OPTIMIZERS = [
    "adadelta",
    "adagrad",
    "adam",
    "adamweightdecay",
    "ftrl",
    "momentum",
    "sgd",
    "rmsprop",
]
LUONG = {"luong5": (25, 5, 5), "luong10": (25, 2, 10), "luong234": (33, 4, 4)}
WARM = 10
CURVES = {
    "fixed": ({}, np.full(STEPS, RATE)),
    "piecewise": (
        {"lr_steps": (20, 40)},
        RATE * 0.1 ** ((T >= 20).astype(int) + (T >= 40)),
    ),
    "polynomial": ({"end_learning_rate": 0}, RATE * (1 - T / STEPS)),
    "linear": ({"end_learning_rate": 0}, RATE * (1 - T / STEPS)),
    "cosine": (
        {"end_learning_rate": 0},
        RATE * 0.5 * (1 + np.cos(np.pi * T / STEPS)),
    ),
    "exponential": (
        {"learning_rate_decay_factor": 0.94, "end_learning_rate": 0},
        RATE * 0.94 ** (T // 10),
    ),
    **{
        name: (
            {"decay_scheme": name, "end_learning_rate": 0},
            RATE * 0.5 ** np.clip((T - start) // interval, 0, times),
        )
        for name, (start, interval, times) in LUONG.items()
    },
    "t2t": (
        {"warmup_steps": WARM, "warmup_scheme": "t2t"},
        np.where(WARM > T, RATE * 0.01 ** (1 - T / WARM), RATE),
    ),
    "warm-up": (
        {"warmup_steps": WARM},
        np.where(WARM > T, RATE * (T + 1) / WARM, RATE),
    ),
}
# Each optimizer with a schedule; test_schedules.py has the curves of all.
PAIRS = list(zip(OPTIMIZERS, CURVES, strict=False))
ALL = [(kind, name) for kind in OPTIMIZERS for name in CURVES]


def digits():
    """Ten drawn classes of 28 × 28 pictures, with noise."""
    rng = np.random.default_rng(0)
    shapes = rng.integers(0, 256, (10, 28, 28, 3))
    labels = rng.integers(0, 10, (STEPS, 8))
    noise = rng.normal(0, 20, (STEPS, 8, 28, 28, 3))
    return np.clip(shapes[labels] + noise, 0, 255).astype(np.uint8), labels


def lenet():
    return keras.Sequential(
        [
            keras.Input((28, 28, 3)),
            keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(16),
        ]
    )


def train(kind, name):
    flags, expected = CURVES[name]
    types = ("polynomial", "linear", "cosine", "exponential", "piecewise")
    decay = name if name in types else "piecewise" if name in LUONG else "fixed"
    settings = Settings.from_values(
        optimizer=kind,
        learning_rate=RATE,
        lr_base_batch_size=0,
        learning_rate_decay_type=decay,
        **flags,
    )
    schedule = schedules.build(settings.learning_rate, schedules.Run(8, 10, STEPS))
    keras.utils.set_random_seed(0)
    with plsc_tf.strategy(1).scope():
        head = plsc_tf.ShardedHead(10, loss=plsc_tf.SOFTMAX)
        model = plsc_tf.Classifier(lenet(), head)
        optimizer, l2 = optimizers.build(settings.optimizer, schedule)
        model.compile(optimizer, l2=l2)
    images, labels = digits()
    rates, losses = [], []
    for step in range(STEPS):
        rates.append(float(model.optimizer.learning_rate))
        losses.append(model.train_on_batch(images[step], labels[step])["loss"])
    np.testing.assert_allclose(rates, expected, rtol=2e-5, atol=1e-8)
    assert np.isfinite(losses).all()
    assert np.mean(losses[-10:]) < np.mean(losses[:10])


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_each_optimizer(kind, name):
    train(kind, name)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [one for one in ALL if one not in PAIRS])
def test_every_optimizer_with_every_schedule(kind, name):
    train(kind, name)
