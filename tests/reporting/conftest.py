"""A small model, and one small run with everything on that is resumed after a kill."""

import io
import json
import shutil
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.jobs import train
from plsc_tf.options import cli
from plsc_tf.options.settings import Settings
from tests import commands
from tests.networks import compiled
from tests.reporting.seen_options import OPTIONS


def rows_of(folder, name="metrics.jsonl"):
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.fixture(scope="session")
def seen(tmp_path_factory, logical_devices):
    """Eight steps, of which a kill takes the last three, then all ten."""
    folder = tmp_path_factory.mktemp("seen") / "run"
    stores = pytest.MonkeyPatch()
    stores.chdir(folder.parent)
    stores.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    stores.setenv("WANDB_MODE", "offline")
    options = {**OPTIONS, "model_save_dir": str(folder)}
    off = dict.fromkeys(("run_report", "with_test", "projector"), False)
    log = io.StringIO()
    with commands.kept_state(log):
        cli.set_up_logging()
        train.train(Settings.from_values(**{**options, **off, "stop_at_step": 8}))
    shutil.rmtree(folder / "step_00000008")  # as if it had not been saved
    off = ("check_shape", "check_content", "print_model_statistics")
    options |= dict.fromkeys(off, False)
    _, outcome = train.train(Settings.from_values(**options))
    stores.undo()
    result = {"log": log.getvalue(), "outcome": outcome, "folder": folder}
    logs_devices = tf.debugging.get_log_device_placement()
    return types.SimpleNamespace(**result, logs_devices=logs_devices)


def network():
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3, strides=2, name="conv"),
            keras.layers.Flatten(name="flat"),
            keras.layers.Dense(6, name="last"),
        ]
    )


@pytest.fixture
def make_model(logical_devices):
    """Builds a compiled classifier of 8 × 8 pictures over five classes."""

    def make(replicas=2, dense=False, **head):
        kind = plsc_tf.DenseHead if dense else plsc_tf.ShardedHead
        return compiled(network, kind(5, scale=16.0, **head), replicas)

    return make


@pytest.fixture
def pictures():
    """uint8 `[10, 8, 8, 3]` noise and labels of five classes."""
    images = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 3))
    return images.astype(np.uint8), np.arange(10) % 5
