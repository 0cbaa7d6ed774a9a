"""Clusters whose run is on HDFS, for a driver of their own.

The workers are forked from it after it has imported TensorFlow and before it touches
HDFS, which it never does: a Java machine does not survive a fork.
"""

import contextlib
import multiprocessing
import os
import pathlib
import sys
import time
from unittest import mock

from hdfs_trainings import Recorder, meet, no_waits

from plsc_tf import train
from plsc_tf.checkpoints import writer
from plsc_tf.jobs import train as run
from plsc_tf.options import cli
from plsc_tf.parallel.addresses import free_ports

LIMIT_S = 150
OPTIONS = {
    "dataset_name": "mock",
    "num_classes": 11,
    "num_sample_per_epoch": 46,
    "image_shape": "3,16,16",
    "model_name": "tests.cluster.plain_network.network",
    "emb_size": 16,
    "global_batch_size": 10,
    "num_epochs": 4,
    "learning_rate": 0.001,
    "lr_base_batch_size": 0,
    "scale": 16,
    "save_checkpoints_epochs": 0,
    "deterministic": True,
    "tensorboard": False,
    "with_test": False,
    "export_at_end": False,
    "join_timeout": 60,
}


def train_together(folder, count, options, broken=None):
    """Trains on several workers, or on one process, until all have ended.

    Args:
        folder: local one, for logs.
        count: of workers.
        options: of the training, in addition to `OPTIONS`.
        broken: [worker, name of a checkpoint, file to make, file to wait for] in the
            middle of that save.

    Returns:
        `{"statuses", "logs", "losses": [{step: loss}]}`, of each worker.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    places, workers = [], []
    if count > 1:
        ports = free_ports("127.0.0.1", count)
        addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
        places = [f"--cluster_node_ips={addresses}"]
    context = multiprocessing.get_context("fork")
    for i in range(count):
        given = {**OPTIONS, **options, **({"task_index": i} if places else {})}
        arguments = [f"--{key}={value}" for key, value in given.items()] + places
        marks = broken[1:] if broken and broken[0] == i else None
        target = (arguments, str(folder / f"worker-{i}"), marks)
        workers.append(context.Process(target=_work, args=target))
        workers[-1].start()
    try:
        until = time.monotonic() + LIMIT_S
        for worker in workers:
            worker.join(max(until - time.monotonic(), 0))
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    paths = [folder / f"worker-{i}" for i in range(count)]
    return {
        "statuses": [worker.exitcode for worker in workers],
        "logs": [path.with_suffix(".log").read_text() for path in paths],
        "losses": [_losses(path.with_suffix(".losses")) for path in paths],
    }


def _losses(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split() for line in lines)


class Teller(Recorder):
    """Writes each loss to a file as it comes."""

    def __init__(self, path):
        super().__init__()
        self._path = pathlib.Path(path)

    def on_train_batch_end(self, batch, logs=None):
        """Writes the newest loss."""
        super().on_train_batch_end(batch, logs)
        step = str(self.model.trainer.position.global_step)
        with self._path.open("a") as file:
            file.write(f"{step} {self.losses[step]}\n")


def _work(arguments, path, marks):
    """Runs `python -m plsc_tf.train` in a child."""
    log = os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.stdout = sys.stderr
    recorder, real = Teller(f"{path}.losses"), writer.npy_chunks
    recorder.listen()

    def chunks(array, low, high):
        for number, piece in enumerate(real(array, low, high)):
            if number and saving[0].endswith(marks[0]):
                meet(*marks[1:])
            yield piece

    def save(path, *arguments):
        saving[:] = [path]
        return real_save(path, *arguments)

    broken = contextlib.nullcontext()
    saving, real_save = [], writer.save
    if marks:
        broken = mock.patch.multiple(writer, npy_chunks=chunks, save=save)
    with broken, no_waits():
        cli.main(lambda given: run.train(given, recorder), train.GROUPS, argv=arguments)
