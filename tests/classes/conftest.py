"""A finished training that several tests look at."""

import pytest

from plsc_tf.jobs import train
from plsc_tf.options.settings import Settings
from tests.classes.tiny import CLASSES, TINY, draw_classes


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """(folder of a run of six classes, folder of its pictures)."""
    root = tmp_path_factory.mktemp("classes")
    draw_classes(root / "data", range(CLASSES))
    values = {**TINY, "dataset_dir": str(root / "data")}
    train.train(Settings.from_values(**values, model_save_dir=str(root / "run")))
    return root / "run", root / "data"
