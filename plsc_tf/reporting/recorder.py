"""Passes the figures of a run on to files and logs."""

import functools

from plsc_tf.reporting.guard import Guard


class Recorder:
    """Passes scalars, histograms and images on to sinks.

    A sink has `begin(step)`, `scalars(step, values)`, `histogram(step, name, values)`,
    `images(step, name, pictures)`, `flush()` and `close()`; steps
    never go back, but for `begin`, which takes back what is later than the step that
    the run goes on from. A sink that fails gets nothing more; the training goes on.

    Args:
        sinks: list of them.
    """

    def __init__(self, sinks=()):
        self.sinks = list(sinks)
        self._guards = {}

    def begin(self, step):
        """The run goes on after `step`, 0 for a new one."""
        self._each(lambda sink: sink.begin(step))

    def scalars(self, step, values):
        """Takes `{name: number}`."""
        self._each(lambda sink: sink.scalars(step, values))

    def histogram(self, step, name, values):
        """Takes numbers whose distribution matters."""
        self._each(lambda sink: sink.histogram(step, name, values))

    def images(self, step, name, pictures):
        """Takes images, uint8 `[N, height, width, 3]`."""
        self._each(lambda sink: sink.images(step, name, pictures))

    def flush(self):
        """What has come shall be where others can read it."""
        self._each(lambda sink: sink.flush())

    def close(self):
        """Nothing more comes."""
        self._each(lambda sink: sink.close())

    def _each(self, call):
        for sink in self.sinks:
            what = getattr(sink, "folder", type(sink).__name__)
            guard = self._guards.setdefault(id(sink), Guard(what))
            guard(functools.partial(call, sink))
