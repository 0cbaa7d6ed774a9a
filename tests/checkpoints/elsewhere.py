"""A training that is saved on some replicas and goes on on others.

As a module it goes on on so many replicas, for the tests, and prints what it found:

    python -m tests.checkpoints.elsewhere <replicas> <folder> <cases to train>
"""

import functools
import hashlib
import json
import pathlib
import sys

import keras
import numpy as np

import plsc_tf
from plsc_tf.training import state

CLASSES = 13  # divides by none of 2, 3, 4 and 8
BATCH = 24
CASES = {
    "momentum": (functools.partial(plsc_tf.Momentum, 0.05), {}, {}),
    "bias": (  # and slots of half the size, and synchronized batch norm
        functools.partial(keras.optimizers.Adam, 0.01),
        {"loss": plsc_tf.SOFTMAX},
        {"head_slot_dtype": "bfloat16"},
    ),
    "sampled": (
        functools.partial(keras.optimizers.Adam, 0.01),
        {"sample_rate": 0.5},
        {},
    ),
}


def make_model(case, replicas):
    """The model of a case, which starts with other weights on every number."""
    optimizer, head, options = CASES[case]
    keras.utils.set_random_seed(replicas)
    norm = [keras.layers.BatchNormalization(synchronized=True)]
    with plsc_tf.strategy(replicas).scope():
        backbone = keras.Sequential(
            [
                keras.Input((4, 4, 3)),
                keras.layers.Flatten(),
                keras.layers.Dense(6),
                *(norm if case == "bias" else []),
                keras.layers.Dense(5),
            ]
        )
        head = plsc_tf.ShardedHead(CLASSES, scale=8.0, seed=replicas, **head)
        model = plsc_tf.Classifier(backbone, head)
        model.compile(optimizer(), **options)
    return model


def train(model, first, last):
    """Runs steps of their own batches; returns their losses."""
    losses = []
    for step in range(first, last):
        rng = np.random.default_rng(step)
        images = rng.integers(0, 256, (BATCH, 4, 4, 3)).astype(np.uint8)
        labels = rng.integers(0, CLASSES, BATCH)
        losses.append(model.train_on_batch(images, labels)["loss"])
    return losses


def values(model):
    """`{name: digest}` of every row, bias, slot, weight and counter."""
    arrays = {**model.head.arrays(), **model.trainer.updater.slots()}
    found = {name: rows.read(0, CLASSES) for name, rows in arrays.items()}
    found |= {f"backbone {i}": w.numpy() for i, w in enumerate(model.backbone.weights)}
    variables = state.training_variables(model).items()
    found |= {name: variable.numpy() for name, variable in variables}
    return {
        name: hashlib.sha256(f"{a.shape} {a.dtype}".encode() + a.tobytes()).hexdigest()
        for name, a in found.items()
    }


def fill(model):
    """Gives every row and slot a number of its own."""
    rng = np.random.default_rng(0)
    for rows in {**model.head.arrays(), **model.trainer.updater.slots()}.values():
        rows.write(0, rng.standard_normal(rows.shape).astype(np.float32))


def save(case, replicas, folder):
    """Trains two steps and saves; returns what is saved, and the next losses.

    Partial FC samples other classes on another number of replicas: it is not trained.
    """
    model = make_model(case, replicas)
    sampled = case == "sampled"
    if sampled:
        fill(model)
    else:
        train(model, 0, 2)
    state.save(str(pathlib.Path(folder) / case), model, {})
    found = values(model)
    return {"values": found, "losses": [] if sampled else train(model, 2, 5)}


def go_on(case, replicas, folder, losses=True):
    """Restores; returns what is there then, and the next losses."""
    model = make_model(case, replicas)
    state.restore(str(pathlib.Path(folder) / case), model)
    found = values(model)
    return {"values": found, "losses": train(model, 2, 5) if losses else []}


if __name__ == "__main__":
    cases = {
        case: go_on(case, int(sys.argv[1]), sys.argv[2], losses=case in sys.argv[3:])
        for case in CASES
    }
    sys.stdout.write(json.dumps(cases) + "\n")
