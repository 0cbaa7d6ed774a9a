"""Logs for TensorBoard; their failure does not end a training."""

import contextlib
import time

import tensorflow as tf
from absl import logging
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from plsc_tf.storage import files
from plsc_tf.storage.deadline import Worker


class TensorBoard:
    """Writes what TensorBoard shows; a store that fails later costs no more than that.

    A file cannot be gone on with whose store was away, so another one is begun. After
    a call that hangs, nothing more is written. Training goes on while one call is in
    flight.

    Args:
        folder: on any store.
        limit_s: seconds that a call may take.

    Raises:
        OSError: there can be no such folder.

    Attributes:
        folder: where the logs are.
    """

    def __init__(self, folder, limit_s=files.RETRY.limit_s):
        files.make_dirs(folder)
        self.folder = folder
        self._limit_s = limit_s
        self._writer = None
        self._worker = None
        self._end_of_worker = contextlib.ExitStack()
        self._hangs = False
        self._lost = False
        self._pending = None

    def begin(self, step):
        """Takes back what an earlier process of the run wrote after `step`."""
        self._call(lambda: self._mark(step))

    def scalars(self, step, values):
        """Writes `{name: number}` at a step."""
        self._call(lambda: self._each(step, tf.summary.scalar, values))

    def histogram(self, step, name, values):
        """Writes the distribution of numbers."""
        self._call(lambda: self._each(step, tf.summary.histogram, {name: values}))

    def images(self, step, name, pictures):
        """Writes images, uint8 `[N, height, width, 3]`."""

        def image(name, pictures):
            tf.summary.image(name, pictures, max_outputs=len(pictures))

        self._call(lambda: self._each(step, image, {name: pictures}))

    def flush(self):
        """Writes what is not written yet."""
        self._call(lambda: self._writer and self._writer.flush())

    def close(self):
        """Writes what is not written yet, closes the file and ends the thread."""
        if self._worker is not None:
            self._call(self._close)
            self._settle()
        self._end_of_worker.close()
        self._worker = None

    def _each(self, step, write, values):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.folder)
        with self._writer.as_default(step=step):
            for name, value in values.items():
                write(name, value)

    def _close(self):
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _mark(self, step):
        """TensorBoard drops what it has from the step of a session's start on.

        The first start of a folder is taken for the run's own and drops nothing.
        """
        writer = EventFileWriter(self.folder, filename_suffix=".begins")
        start = SessionLog(status=SessionLog.START)
        for _ in range(2):
            now = time.time()
            writer.add_event(Event(wall_time=now, step=step + 1, session_log=start))
        writer.close()

    def _call(self, function):
        """Begins a call when the one before has ended."""
        self._settle()
        if self._hangs:
            return
        if self._worker is None:
            self._worker = self._end_of_worker.enter_context(Worker())
        self._pending = self._worker.start(function)

    def _settle(self):
        """Waits for the call in flight, and logs its error."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            self._worker.finish(pending, self._limit_s, f"write to {self.folder}")
        except files.StorageError as error:
            self._hangs = True
            logging.warning("No more logs for TensorBoard are written: %s", error)
        except Exception as error:  # noqa: BLE001 - no log is worth a training
            # Only the worker lets go of the file: closing a broken one may block.
            self._worker.start(self._forget)
            if not self._lost:
                logging.warning(
                    "Logs for TensorBoard are lost; could not write %s: %s",
                    self.folder,
                    str(error).strip(),
                )
            self._lost = True

    def _forget(self):
        self._writer = None
