"""A training run with three centers per class, and its checkpoint with one."""

import numpy as np
import pytest

from plsc_tf.data import figures
from plsc_tf.jobs import train, trained as trained_models
from plsc_tf.jobs.classes import rows
from plsc_tf.options.settings import Settings
from tests.classes import tiny


@pytest.fixture(scope="session")
def centers(tmp_path_factory):
    """A folder with `run`, trained on two replicas, and `data`, its images."""
    root = tmp_path_factory.mktemp("classes")
    tiny.draw_classes(root / "data", range(tiny.CLASSES))
    train.train(tiny.settings_of(root))
    return root


@pytest.fixture(scope="session")
def expected(centers):
    """The dominant centers by the definition: float64, image by image."""
    settings = Settings.from_values(model_save_dir=str(centers / "run"), num_replicas=1)
    model = trained_models.load(settings).model
    weights = tiny.rows_of(centers / "run" / "0").astype(np.float64)
    weights /= np.linalg.norm(weights, axis=2, keepdims=True)
    paths, dominant, angles, own = [], [], [], 0
    for label in range(tiny.CLASSES):
        numbers = range(tiny.PICTURES + label % 2)
        images = np.stack([figures.draw(0, label, k, tiny.SIZE) for k in numbers])
        found = model.embed(images).astype(np.float64)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        cosines = found @ weights[label].T
        counts = np.bincount(cosines.argmax(axis=1), minlength=tiny.CENTERS)
        dominant.append(int(counts.argmax()))
        own += counts.max()
        angles += np.degrees(np.arccos(cosines[:, dominant[-1]])).tolist()
        paths += [f"person{label:02d}/{k}.png {label}" for k in numbers]
    # Between two images, so that rounding does not decide.
    limit = np.sort(angles)[19:21].mean()
    near = [path for path, a in zip(paths, angles, strict=True) if a < limit]
    return {"dominant": dominant, "limit": limit, "near": near, "own": own}


@pytest.fixture(scope="session")
def dropped(centers, expected):
    """The rows of the table of the command that leaves one center per class."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "FARTHEST", expected["limit"])
        return tiny.run_command(
            f"--model_save_dir={centers / 'run'}",
            f"--edit_dir={centers / 'one'}",
            "--drop_sub_centers",
            f"--new_list={centers / 'cleaned.txt'}",
        )


@pytest.fixture(scope="session")
def trained(centers, dropped):
    """(folder of a checkpoint of six classes, folder of its images)."""
    return centers / "one", centers / "data"
