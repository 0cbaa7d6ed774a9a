"""What TensorBoard's projector is told, read back by its own format."""

import numpy as np
import pytest
from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from plsc_tf.reporting import projector


@pytest.mark.parametrize("name", ["lfw", "own/easy", 'the "good" ones\\', "../up"])
def test_any_name_of_a_set_will_do(tmp_path, name):
    pictures = np.zeros((2, 8, 8, 3), np.uint8)
    folder = tmp_path / "logs"
    projector.write(str(folder), name, np.eye(2), ["a", "b"], pictures)
    text = (folder / "projector_config.pbtxt").read_text()
    (found,) = text_format.Parse(text, ProjectorConfig()).embeddings
    assert found.tensor_name == name
    for path in (found.tensor_path, found.metadata_path, found.sprite.image_path):
        assert (folder / path).parent == folder and (folder / path).is_file()
    assert len(list(folder.iterdir())) == 4
    np.testing.assert_array_equal(np.loadtxt(folder / found.tensor_path), np.eye(2))
