"""Takes what a run tells, and hands it to everything that keeps it."""


class Recorder:
    """Hands on scalars, histograms and pictures to sinks.

    A sink has `begin(step)`, `scalars(step, values)`, `histogram(step, name, values)`,
    `images(step, name, pictures)`, `flush()` and `close()`; steps
    never go back, but for `begin`, which takes back what is later than the step that
    the run goes on from.

    Args:
        sinks: list of them.
    """

    def __init__(self, sinks=()):
        self.sinks = list(sinks)

    def begin(self, step):
        """The run goes on after `step`, 0 for a new one."""
        for sink in self.sinks:
            sink.begin(step)

    def scalars(self, step, values):
        """Takes `{name: number}`."""
        for sink in self.sinks:
            sink.scalars(step, values)

    def histogram(self, step, name, values):
        """Takes numbers whose distribution matters."""
        for sink in self.sinks:
            sink.histogram(step, name, values)

    def images(self, step, name, pictures):
        """Takes pictures, uint8 `[N, height, width, 3]`."""
        for sink in self.sinks:
            sink.images(step, name, pictures)

    def flush(self):
        """What has come shall be where others can read it."""
        for sink in self.sinks:
            sink.flush()

    def close(self):
        """Nothing more comes."""
        for sink in self.sinks:
            sink.close()
