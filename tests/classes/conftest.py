"""A finished training that several tests look at."""

import pytest

from plsc_tf.settings import Settings
from plsc_tf.training import run
from tests.classes.tiny import CLASSES, TINY, draw_classes


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """(folder of a run of six classes, folder of its pictures)."""
    root = tmp_path_factory.mktemp("classes")
    draw_classes(root / "data", range(CLASSES))
    values = {**TINY, "dataset_dir": str(root / "data")}
    run.train(Settings.from_values(**values, model_save_dir=str(root / "run")))
    return root / "run", root / "data"
