"""Checkpoints with changed values, whose checksums are right."""

import json
import pathlib
import random
import shutil
import sys
import tempfile

import plsc_tf
from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.training import state
from tests.checkpoints.small import seal
from tests.fuzz.mutations import change_json, mutate
from tests.training import checkpointed


class Checkpoint:
    """A target like those of `tests.fuzz.targets`: a folder with a checkpoint.

    `read` resumes from it, `train` loads its model, `convert` does nothing.
    """

    name, data_set = manifest.NAME, ""

    def __init__(self):
        self._good = pathlib.Path(tempfile.mkdtemp()) / "0"
        self._model = checkpointed.build(1, loss=plsc_tf.ADAFACE)
        self._model.compile(self._model.optimizer, loss_scale=plsc_tf.LossScale(8))
        extra = {"flags": {"model_name": "lenet", "num_classes": 5}, "run": "x"}
        state.save(str(self._good), self._model, extra)
        self._opened = []
        sys.addaudithook(self._watch)

    def write(self, folder, seed):
        """Writes a changed checkpoint; the same seed writes the same values."""
        dice, path = random.Random(seed), folder / "step_00000000"
        self._loads = dice.random() < 0.4
        shutil.copytree(self._good, path)
        content = manifest.read(str(path))
        if dice.random() < 0.2:
            file = path / dice.choice(list(content["files"]))
            file.write_bytes(mutate(file.read_bytes(), dice))
        if dice.random() < 0.3:
            network = json.loads(content["state"]["network"])
            change_json(network, dice)
            content["state"]["network"] = json.dumps(network)
        else:
            change_json(content, dice)
        try:
            seal(path, content)
        except (AttributeError, LookupError, OSError, TypeError):
            (path / manifest.NAME).write_bytes(manifest.encode(content))

    def read(self, folder):
        """Resumes from the checkpoint, or loads its model."""
        if self._loads:
            self.train(folder)
            return
        path = catalog.resolve(str(folder))
        plsc_tf.Checkpoint(folder).restore(self._model, path, allow_changes=True)
        position = self._model.trainer.position
        assert min(position.epoch, position.step, position.global_step) >= 0
        assert not self._opened

    def train(self, folder):
        """Loads the model of the checkpoint."""
        plsc_tf.load_model(folder / "step_00000000")
        assert not self._opened

    def convert(self, folder):
        """Does nothing: nothing else reads all of a checkpoint."""

    def _watch(self, event, arguments):
        if event in ("open", "import") and "secret" in str(arguments[0]):
            self._opened.append(arguments[0])
