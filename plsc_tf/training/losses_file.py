"""The loss of every step, exact to the last bit."""

import pathlib

import keras


class LossesFile(keras.callbacks.Callback):
    """Adds a line `<global step> <loss as a hexadecimal float>` after each step.

    `float.fromhex` reads it back. A resumed run adds its own lines, so a step that is
    repeated after a kill stands there twice.

    Args:
        path: the file, on a local disk.
    """

    def __init__(self, path):
        super().__init__()
        self.path = path
        self._file = None

    def on_train_begin(self, logs=None):
        """Opens the file at its end."""
        path = pathlib.Path(self.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="ascii", buffering=1)

    def on_train_batch_end(self, batch, logs=None):
        """Writes the step's loss, unless the step was skipped."""
        if self.model.step_result:
            loss = self.model.step_result["loss"]
            self._file.write(f"{self.model.position.global_step} {loss.hex()}\n")

    def on_train_end(self, logs=None):
        """Closes the file."""
        self._file.close()
