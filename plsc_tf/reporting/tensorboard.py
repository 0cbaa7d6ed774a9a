"""Writes logs for TensorBoard."""

import functools
import time

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from plsc_tf.reporting.recorder import Sink
from plsc_tf.storage import files
from plsc_tf.storage.deadline import Worker
from plsc_tf.storage.transfer import LocalFolder


class TensorBoard(Sink):
    """Writes logs for TensorBoard.

    Args:
        folder: log folder, on any store.
        limit_s: time limit of a call in seconds, because a remote store may hang.

    Raises:
        OSError: the folder cannot be created.

    Attributes:
        folder: log folder.
    """

    def __init__(self, folder: str, limit_s: float = files.RETRY.limit_s):
        files.make_dirs(folder)
        self.folder, self._limit_s = folder, limit_s
        self._local = LocalFolder(folder)
        self._worker = self._writer = None

    def begin(self, step):
        """Hides everything that an earlier process of the run wrote after `step`."""
        self._call(lambda: self._mark(step))

    def scalars(self, step, values):
        """See `Sink`."""
        self._call(lambda: self._each(step, tf.summary.scalar, values))

    def histogram(self, step, name, values):
        """See `Sink`."""
        self._call(lambda: self._each(step, tf.summary.histogram, {name: values}))

    def images(self, step, name, images):
        """See `Sink`."""

        write = functools.partial(tf.summary.image, max_outputs=len(images))
        self._call(lambda: self._each(step, write, {name: images}))

    def flush(self):
        """See `Sink`."""
        self._call(lambda: self._writer and self._writer.flush())
        self._local.upload()

    def close(self):
        """Closes the file and ends the thread."""
        if self._worker is None:
            return
        with self._worker:
            self._call(lambda: self._writer and self._writer.close())
            self._local.upload()
        self._worker = self._writer = None

    def _each(self, step, write, values):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._local.path)
        with self._writer.as_default(step=step):
            for name, value in values.items():
                write(name, value)

    def _mark(self, step):
        """Marks a session start, which makes TensorBoard drop all later steps.

        The mark is written twice because TensorBoard ignores the first one in a folder.
        """
        writer = EventFileWriter(self._local.path, filename_suffix=".begins")
        start = SessionLog(status=SessionLog.START)
        for _ in range(2):
            now = time.time()
            writer.add_event(Event(wall_time=now, step=step + 1, session_log=start))
        writer.close()

    def _call(self, function):
        """Calls a function in a thread, because a hanging call can't be interrupted."""
        if self._worker is None:
            self._worker = Worker()
        self._worker.run(function, self._limit_s, f"write to {self.folder}")
