"""The command on a folder of TinyFace and saved embeddings."""

import numpy as np
import pytest

from tests.evaluation.saved_embeddings import evaluate


def write_tinyface(folder, people=12):
    """Folders of empty files and the saved embeddings that they are names of."""
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(people, 6))
    names, rows = [], []
    for label in range(people):
        for part, count in {"Gallery_Match": 2, "Probe": 2}.items():
            for k in range(count):
                names.append(f"{part}/{label + 100}_{k}.jpg")
                rows.append(centres[label] + rng.normal(size=6))
    for k in range(40):
        names.append(f"Gallery_Distractor/{k % 12 + 100}_d{k}.jpg")
        rows.append(rng.normal(size=6))
    for name in names:
        path = folder / "Testing_Set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (folder / "Testing_Set" / "Probe" / "Thumbs.db").touch()
    np.save(folder / "faces.npy", np.array(rows))
    (folder / "faces.txt").write_text("\n".join(names))
    return names, np.array(rows)


def test_tinyface(tmp_path):
    names, rows = write_tinyface(tmp_path)
    table = evaluate(tmp_path, tinyface_dir=str(tmp_path / "Testing_Set"))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    gallery = [i for i, name in enumerate(names) if not name.startswith("Probe")]
    probes = [i for i, name in enumerate(names) if name.startswith("Probe")]

    def identity(i):
        # A distractor is nobody, whatever its name begins with.
        part, name = names[i].split("/")
        return -1 if part == "Gallery_Distractor" else int(name.split("_")[0])

    own = np.array([identity(i) for i in gallery])
    order = np.argsort(-unit[probes] @ unit[gallery].T, axis=1)
    hits = own[order] == np.array([identity(i) for i in probes])[:, None]
    for k in (1, 5, 20):
        expected = hits[:, :k].any(axis=1).mean()
        assert table[f"TinyFace: rank-{k}"] == f"{expected:.5f}"
        assert 0 < expected
    assert hits[:, :5].any(axis=1).mean() < 1, "the case must not be trivial"
    assert table["TinyFace: gallery entries"] == 24 + 40
    assert table["TinyFace: probes"] == 24


def test_tinyface_needs_its_folders_and_numbers(tmp_path):
    write_tinyface(tmp_path)
    with pytest.raises(FileNotFoundError, match="must contain a Gallery_Match folder"):
        evaluate(tmp_path, tinyface_dir=str(tmp_path))
    (tmp_path / "Testing_Set" / "Probe" / "x_1.jpg").touch()
    words = "Received: name=x_1.jpg. Name them as in 12_3.jpg"
    with pytest.raises(ValueError, match=words):
        evaluate(tmp_path, tinyface_dir=str(tmp_path / "Testing_Set"))
