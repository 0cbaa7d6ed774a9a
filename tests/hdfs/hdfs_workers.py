"""Clusters whose run is on HDFS, for a driver of their own.

The workers are forked from it after it has imported TensorFlow and before it touches
HDFS, which it never does: a Java machine does not survive a fork.
"""

import json
import os
import pathlib

import keras
from hdfs_trainings import meet, no_waits

from benchmarks import processes
from plsc_tf.checkpoints import writer
from tests.cluster import cluster_driver

ARGUMENTS = [
    *cluster_driver.MOCK,
    *cluster_driver.NO_TEST,
    "--nosave_losses",
    "--save_checkpoints_epochs=0",
    "--hooks=CheckpointSaverHook,StopAtStepHook,hdfs_workers:Watched",
]


def train_together(folder, count, arguments, *marks):
    """Trains on several workers, or on one process, until all have ended.

    Args:
        folder: local one, for logs.
        count: of workers.
        arguments: of the training, in addition to `ARGUMENTS`.
        *marks: a file that the last worker makes in the middle of its save of step 6,
            and the file that it then waits for.

    Returns:
        `{"statuses", "logs", "losses": [{step: loss}]}`, of each worker.
    """
    processes.load()
    os.environ["HDFS_WORKERS"] = json.dumps([folder, count - 1, marks])
    found = cluster_driver.Cluster(folder, count, [*ARGUMENTS, *arguments]).end()
    found["losses"] = []
    for i in range(count):
        lines = (pathlib.Path(folder) / f"{i}.losses").read_text().splitlines()
        found["losses"].append(dict(line.split() for line in lines))
    return found


class Watched(keras.callbacks.Callback):
    """Writes each loss as it comes; the last worker's save of step 6 waits."""

    def on_train_begin(self, logs=None):
        """Patches what saves, for as long as this process lives."""
        folder, last, marks = json.loads(os.environ["HDFS_WORKERS"])
        worker = self.model.trainer.group.index
        self.path = pathlib.Path(folder) / f"{worker}.losses"
        no_waits().start()
        if marks and worker == last:
            hold_up(marks)

    def on_train_batch_end(self, batch, logs=None):
        """Writes the newest loss, exact to the last bit."""
        trainer = self.model.trainer
        with self.path.open("a") as file:
            loss = trainer.step_result["loss"].hex()
            file.write(f"{trainer.position.global_step} {loss}\n")


def hold_up(marks):
    """Makes the save of step 6 wait in the middle of a file, in this process."""
    real_save, real_chunks = writer.save, writer.npy_chunks

    def chunks(array, low, high):
        for number, piece in enumerate(real_chunks(array, low, high)):
            if number:
                meet(*marks)
            yield piece

    def save(path, *arguments):
        writer.npy_chunks = chunks if path.endswith("6") else real_chunks
        return real_save(path, *arguments)

    writer.save = save
