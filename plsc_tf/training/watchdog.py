"""The watchdog of a training: a step that stalls ends with an error."""

import keras

from plsc_tf.training.stalls import StallDetector


class Watchdog(keras.callbacks.Callback):
    """Ends the process when a step, or anything else, takes too long.

    It writes the stacks of all threads, and names the workers that the others wait
    for. All workers end with status 75.

    Args:
        timeout_s: the longest time between two signs of progress, in seconds. The first
            step traces and compiles the graph, and must find time for that, too.
        group: the `plsc_tf.parallel.group.Group` of workers; None, or a group of one,
            when this process is alone.
    """

    def __init__(self, timeout_s, group=None):
        super().__init__()
        self._detector = StallDetector(timeout_s, group)

    def tell(self, activity):
        """Says what is done from now on: "verifying lfw", "saving step_00000100".

        Args:
            activity: a few words; workers that do the same must say the same.
        """
        self._detector.tell(activity)

    def stop(self):
        """Ends watching, also after an exception."""
        self._detector.stop()

    def on_train_begin(self, logs=None):
        """Begins to watch."""
        self._tell_reading()
        self._detector.start()

    def on_epoch_begin(self, epoch, logs=None):
        """The data of the epoch is opened."""
        self._tell_reading()

    def on_train_batch_begin(self, batch, logs=None):
        """A step begins."""
        self.tell(f"step {self._next_step()}")

    def on_train_batch_end(self, batch, logs=None):
        """A step is done."""
        self._tell_reading()

    def on_train_end(self, logs=None):
        """Ends watching."""
        self.stop()

    def _next_step(self):
        return self.model.position.global_step + 1

    def _tell_reading(self):
        self.tell(f"reading the batch of step {self._next_step()}")
