"""Writes logs for TensorBoard."""

import functools
import secrets
import time

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from plsc_tf.reporting.recorder import Sink
from plsc_tf.storage import files, transfer


class TensorBoard(Sink):
    """Writes logs for TensorBoard.

    Args:
        folder: log folder, on any store; other stores than a local disk get the files
            at each `flush`.

    Raises:
        OSError: the folder cannot be created.
    """

    def __init__(self, folder: str):
        files.make_dirs(folder)
        self.output = folder
        self._local, self._writer = transfer.LocalFolder(folder), None
        # TensorFlow writes through links, which a stranger's run could bring along for
        # names that he can guess.
        self._suffix = f".{secrets.token_hex(8)}"

    def begin(self, step):
        """Hides everything that an earlier process of the run wrote after `step`.

        A session start makes TensorBoard drop all later steps. It is written twice
        because TensorBoard ignores the first one in a folder.
        """
        writer = EventFileWriter(self._local.path, filename_suffix=self._suffix)
        start = SessionLog(status=SessionLog.START)
        for _ in range(2):
            now = time.time()
            writer.add_event(Event(wall_time=now, step=step + 1, session_log=start))
        writer.close()

    def scalars(self, step, values):
        """See `Sink`."""
        self._write(step, tf.summary.scalar, values)

    def histogram(self, step, name, values):
        """See `Sink`."""
        self._write(step, tf.summary.histogram, {name: values})

    def images(self, step, name, images):
        """See `Sink`."""
        write = functools.partial(tf.summary.image, max_outputs=len(images))
        self._write(step, write, {name: images})

    def flush(self):
        """See `Sink`."""
        if self._writer is not None:
            self._writer.flush()
        self._local.upload()

    def close(self):
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._local.upload()

    def _write(self, step, write, values):
        if self._writer is None:
            place, suffix = self._local.path, f"{self._suffix}.v2"
            self._writer = tf.summary.create_file_writer(place, filename_suffix=suffix)
        with self._writer.as_default(step=step):
            for name, value in values.items():
                write(name, value)
