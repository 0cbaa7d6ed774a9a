"""The loss of every step, exact to the last bit."""

import keras

from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path


class LossesFile(keras.callbacks.Callback):
    """Adds a line `<global step> <loss as a hexadecimal float>` after each step.

    `float.fromhex` reads it back. A resumed run adds its own lines, so a step that is
    repeated after a kill stands there twice.

    Args:
        path: the file, on a local disk.

    Raises:
        ValueError: it is elsewhere, where nothing can be added to a file.
    """

    def __init__(self, path):
        super().__init__()
        if not files.is_local(path):
            raise ValueError(
                "save_losses adds a line to losses.txt after each step, which only a "
                f"local disk can take. Received: {path}. Leave it out, or train into "
                "a local model_save_dir and set fs_dir_for_save, to which it is copied."
            )
        self.path = local_path(path)
        self._file = None

    def on_train_begin(self, logs=None):
        """Opens the file at its end."""
        files.make_dirs(files.parent(self.path))
        self._file = open(self.path, "a", encoding="ascii", buffering=1)

    def wants(self, step):
        """Losses alone: the model is not looked at, see `several_steps`."""
        return False

    def on_train_batch_end(self, batch, logs=None):
        """Writes the step's loss, unless the step was skipped."""
        if self.model.trainer.step_result:
            loss = self.model.trainer.step_result["loss"]
            self._file.write(
                f"{self.model.trainer.position.global_step} {loss.hex()}\n"
            )

    def on_train_end(self, logs=None):
        """Closes the file."""
        self._file.close()
