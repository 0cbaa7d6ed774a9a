"""A text file with a line for every step."""

from collections.abc import Callable

import keras

from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path


class StepLines(keras.callbacks.Callback):
    """Appends a line to a file after each step.

    A resumed run appends its own lines, so a step that is repeated after a kill is in
    the file twice.

    Args:
        path: the file, on a local disk.
        line: function of the model that returns a line, or "" for none.

    Raises:
        ValueError: the file is on another store, which cannot append.
    """

    def __init__(self, path: str, line: Callable[[keras.Model], str]):
        super().__init__()
        if not files.is_local(path):
            raise ValueError(
                "save_losses adds a line to losses.txt after each step, which only a "
                f"local disk can take. Received: {path}. Leave it out, or train into "
                "a local model_save_dir and set fs_dir_for_save, to which it is copied."
            )
        self.path = local_path(path)
        self._line = line
        self._file = None

    def on_train_begin(self, logs=None):
        """Opens the file at its end."""
        files.make_dirs(files.parent(self.path))
        self._file = open(self.path, "a", encoding="ascii", buffering=1)

    def wants(self, step):
        """Needs the step's result only, not the model; see `several_steps`."""
        return False

    def on_train_batch_end(self, batch, logs=None):
        """Writes the step's line."""
        line = self._line(self.model)
        if line:
            self._file.write(f"{line}\n")

    def on_train_end(self, logs=None):
        """Closes the file."""
        self._file.close()


def exact_loss(model) -> str:
    """`<global step> <loss>`, as `float.fromhex` reads it; "" if it was skipped."""
    trainer = model.trainer
    if not trainer.step_result:
        return ""
    return f"{trainer.position.global_step} {trainer.step_result['loss'].hex()}"
