"""The checkpoint of the best epoch stays beside the newest ones."""

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.checkpoints import manifest
from tests.training.checkpointed import fit, head_of, names, resume

SETS = ["a_accuracy", "b_accuracy"]


class Accuracies(keras.callbacks.Callback):
    """Stands for a verification; keeps what the weights were."""

    def __init__(self, *values, sets=SETS):
        super().__init__()
        self.values, self.sets = values, sets
        self.kernels = []

    def on_epoch_end(self, epoch, logs=None):
        if self.values[epoch] is not None:
            for name, change in zip(self.sets, (-0.1, 0.1), strict=False):
                logs[name] = self.values[epoch] + change
        self.kernels.append(self.model.head.weights_as_numpy())


def best_of(folder):
    return manifest.read(str(folder))["state"]["best"]


@pytest.mark.parametrize("every_n_epochs", [0, 1])
def test_the_best_epoch_is_kept_beside_the_newest(model, tmp_path, every_n_epochs):
    seen = Accuracies(0.5, 0.8, 0.6, None)
    options = {"max_to_keep": 1, "save_best": True, "every_n_epochs": every_n_epochs}
    fit(model, seen, plsc_tf.Checkpoint(tmp_path, **options), epochs=4)
    newest = "3" if every_n_epochs else "step_00000016"
    assert names(tmp_path) == ["1", newest]
    best = {"epoch": 1, "accuracy": pytest.approx(0.8), "of": SETS}
    assert best_of(tmp_path / newest) == best
    np.testing.assert_array_equal(head_of(model, tmp_path / "1"), seen.kernels[1])

    # A resumed run goes on comparing with it.
    for epochs, accuracy, best in ((5, 0.7, 1), (6, 0.9, 5)):
        again = plsc_tf.Checkpoint(tmp_path, **options)
        resume(model, again, Accuracies(*[accuracy] * epochs), epochs=epochs)
        assert best_of(tmp_path / names(tmp_path)[-1])["epoch"] == best
    assert names(tmp_path) == ["5"]
    # Accuracies on other sets are not comparable.
    seen = Accuracies(*[0.6] * 7, sets=("hard_accuracy",))
    resume(model, plsc_tf.Checkpoint(tmp_path, **options), seen, epochs=7)
    assert best_of(tmp_path / "6")["epoch"] == 6


def test_the_best_epoch_is_that_of_verification_only(model, tmp_path, caplog):
    """Accuracies on the classes in training grow whatever the embeddings are worth."""

    class Trained(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.ranked_metrics = {}  # the model's step has none

        def on_epoch_end(self, epoch, logs=None):
            self.model.ranked_metrics = {"accuracy": 1, "top5_accuracy": 5}
            for name in ("accuracy", "top5_accuracy"):
                logs[name] = logs[f"val_{name}"] = epoch / 2
            logs["c_accuracy"] = None

    saving = plsc_tf.Checkpoint(tmp_path / "a", save_best=True)
    try:
        fit(model, Accuracies(0.8, 0.7), Trained(), saving)
        saving = plsc_tf.Checkpoint(tmp_path / "b", save_best=True)
        fit(model, Trained(), saving)
    finally:
        model.ranked_metrics = {}
    state = manifest.read(str(tmp_path / "a" / "1"))["state"]
    assert state["best"] == {"epoch": 0, "accuracy": pytest.approx(0.8), "of": SETS}
    assert state["logs"]["c_accuracy"] is None
    assert best_of(tmp_path / "b" / "1") is None
    assert "it is not verified yet" in caplog.text
