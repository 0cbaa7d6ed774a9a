"""Scalars for TensorBoard, which a training can do without."""

import tensorflow as tf
from absl import logging

from plsc_tf.storage import files
from plsc_tf.storage.deadline import Worker


class Scalars:
    """Writes scalars; a store that fails later costs them, and not the training.

    A file cannot be gone on with whose store was away, so another one is begun. After
    a call that hangs, nothing more is written.

    Args:
        folder: on a local disk or any store of `tf.io.gfile`.
        limit_s: seconds that a call may take.

    Raises:
        OSError: there can be no such folder.
    """

    def __init__(self, folder, limit_s=files.RETRY.limit_s):
        files.make_dirs(folder)
        self._folder = folder
        self._limit_s = limit_s
        self._writer = None
        self._worker = Worker()

    def write(self, step, values):
        """Writes `{name: number}` at a step."""
        self._call(lambda: self._write(step, values))

    def close(self):
        """Writes what is not written yet."""
        self._call(lambda: self._writer and self._writer.close())

    def _write(self, step, values):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._folder)
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def _call(self, function):
        if self._worker is None:
            return
        try:
            self._worker.run(function, self._limit_s, f"write to {self._folder}")
        except tf.errors.OpError as error:
            # Only the worker lets go of the file: closing a broken one may block.
            self._worker.start(self._forget)
            logging.warning(
                "Scalars for TensorBoard are lost; %s could not be written: %s",
                self._folder,
                str(error.message).strip(),
            )
        except files.StorageError as error:
            self._worker = None
            logging.warning("No more scalars for TensorBoard are written: %s", error)

    def _forget(self):
        self._writer = None
