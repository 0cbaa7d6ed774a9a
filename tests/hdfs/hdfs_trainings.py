"""Trainings that the driver is asked for: small ones, whose run is on HDFS."""

import contextlib
import os
import pathlib
import sys
import threading
import time
import types
from unittest import mock

import keras
import tensorflow as tf

import plsc_tf
from plsc_tf.checkpoints import catalog, writer
from plsc_tf.jobs import train as run
from plsc_tf.jobs.embed.command import embed
from plsc_tf.jobs.evaluate import command
from plsc_tf.jobs.export import export_checkpoint
from plsc_tf.options.settings import Settings
from plsc_tf.serving import versions
from plsc_tf.storage import files, remote
from plsc_tf.training.ending import Termination
from tests.jobs.tiny_run import TINY
from tests.seeds.documents import PLSC
from tests.seeds.plsc_folder import make_train_data, modules, results

OPTIONS = {
    **TINY,
    "num_classes": 20,
    "num_sample_per_epoch": 80,
    "batch_size": 4,
    "num_epochs": 1,
    "log_loss_every_n_iters": 1,
    "tensorboard": True,
    "run_report": True,
}


class Recorder(Termination):
    """Notes the loss of every step."""

    def __init__(self):
        super().__init__()
        self.losses = {}

    def on_train_batch_end(self, batch, logs=None):
        """Notes the loss, exact to the last bit."""
        super().on_train_batch_end(batch, logs)
        step = self.model.trainer.position.global_step
        self.losses[str(step)] = self.model.trainer.step_result["loss"].hex()


class Waiting(Recorder):
    """Waits after each step for the save in flight, before another can begin.

    Args:
        after: step at whose end `made` is made, and `awaited` waited for.
    """

    def __init__(self, after, made, awaited):
        super().__init__()
        self._meets = {after: (made, awaited)}

    def on_train_batch_end(self, batch, logs=None):
        """Waits; the callback that saves comes later."""
        super().on_train_batch_end(batch, logs)
        while any("plsc_tf-save" in thread.name for thread in threading.enumerate()):
            time.sleep(0.02)
        if self.model.trainer.position.global_step in self._meets:
            meet(*self._meets[self.model.trainer.position.global_step])


def train(options):
    """Trains; returns the losses by step, what came out, and the error."""
    return _train(_settings(options), Recorder())


def train_without_waits(options):
    """Trains; attempts to reach a store follow each other at once."""
    with no_waits():
        return train(options)


def no_waits():
    """How long attempts are apart is tested elsewhere, and takes ten seconds."""
    clock = types.SimpleNamespace(sleep=lambda seconds: None)
    return mock.patch.object(remote, "time", clock)


def train_past_a_broken_save(options, step, begun, go_on, over, mended):
    """Trains, and makes the save after `step` wait in the middle of a file.

    `begun` is made then, and `go_on` waited for; at the end of the next step, when
    that save has ended, `over` is made and `mended` waited for.
    """

    def pieces(array, low, high):
        for number, piece in enumerate(real(array, low, high)):
            if number and recorder.model.trainer.position.global_step >= step:
                meet(begun, go_on)
            yield piece

    real = writer.npy_chunks
    recorder = Waiting(step + 1, over, mended)
    with mock.patch.object(writer, "npy_chunks", pieces), no_waits():
        return _train(_settings(options), recorder)


def _settings(options):
    return Settings.from_values(**{**OPTIONS, **options})


def _train(settings, recorder):
    said = {"losses": recorder.losses, "outcome": None, "error": None}
    try:
        _, said["outcome"] = run.train(settings, recorder)
    except (OSError, ValueError) as error:
        said["error"] = [type(error).__name__, str(error)]
    return said


def meet(made, awaited):
    """Makes a file and waits for another."""
    pathlib.Path(made).touch()
    while not os.path.exists(awaited):
        time.sleep(0.02)


def read(path):
    return files.read(path).decode()


def checkpoints(folder):
    """Names of the checkpoints, and of the newest whose every file is sound."""
    found = [files.name(path) for _, path in catalog.find_all(folder)]
    return [found, files.name(catalog.newest(folder))]


def sweep(folder):
    catalog.sweep(folder)


def evaluate(checkpoint_dir):
    return dict(command.evaluate(_of(checkpoint_dir)))


def export(checkpoint_dir):
    return dict(export_checkpoint(_of(checkpoint_dir)))


def export_network(folder):
    """Exports a small network; returns the versions that servers find afterwards."""
    layers = [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(4)]
    plsc_tf.export_saved_model(keras.Sequential(layers), folder)
    return list(versions.find_models(folder))


def embedding(saved_model):
    """Embeds an image file on the same store with an export."""
    images = f"{saved_model}-images"
    files.make_dirs(images)
    content = tf.io.encode_jpeg(tf.zeros([16, 16, 3], tf.uint8)).numpy()
    files.write(f"{images}/0.jpg", content)
    options = {"images": images, "output": f"{images}/rows.npy", "flip": False}
    return dict(embed(Settings.from_values(saved_model=saved_model, **options)))


def _of(checkpoint_dir):
    return Settings.from_values(
        checkpoint_dir=checkpoint_dir, val_targets=("mock",), num_replicas=2
    )


def plsc_script(name, uri, directory, folder):
    """Runs a script of PLSC's manual with the addresses of a real HDFS.

    Args:
        name: of the script in tests/seeds/plsc.md.
        uri: address of the NameNode.
        directory: on HDFS, for "some_dir".
        folder: the working directory; gets train_data/ and saved_model/.

    Returns:
        results.json of the run.
    """
    os.makedirs(os.path.join(folder, "saved_model"))
    make_train_data(pathlib.Path(folder), [number % 5 for number in range(8)])
    script = PLSC[name].replace("you_hdfs_addr", uri)
    script = script.replace("some_dir", directory)
    # The other trainings' number of replicas: TensorFlow cannot change it.
    small = modules(num_replicas=2, batch_size=2)
    sys.modules.update(small)
    try:
        # The driver answers on standard output.
        with contextlib.chdir(folder), contextlib.redirect_stdout(sys.stderr):
            exec(compile(script, name, "exec"), {"__name__": "__main__"})  # noqa: S102
    finally:
        for module in small:
            del sys.modules[module]
    saved = "saved_model" if name == "UPLOAD" else "output"
    return results(os.path.join(folder, saved))
