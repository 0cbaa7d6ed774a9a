"""Lists and embeddings made by an attacker: bounded memory, and private images."""

import numpy as np
import pytest

from plsc_tf.data.images import encode
from plsc_tf.evaluation.identification import search
from tests.data.conftest import bounded
from tests.evaluation.saved_embeddings import evaluate, repeat


# The scores of a list of one name took a thousand times its size.
def test_a_gallery_of_one_person_takes_little_memory():
    gallery, probes = np.ones((100_000, 1)), np.ones((1024, 1))
    with bounded():
        found = search(gallery, np.zeros(100_000), probes, np.zeros(1024))
    assert (found.ranks == 1).all()


def write_pairs(folder, names):
    """Writes faces.npy, faces.txt and pairs.txt; returns the list's path."""
    np.save(folder / "faces.npy", np.eye(len(names)))
    (folder / "faces.txt").write_text("\n".join(names))
    sides = zip(names[::2], names[1::2], strict=True)
    lines = [f"{one} {other} {k % 2}\n" for k, (one, other) in enumerate(sides)]
    (folder / "pairs.txt").write_text("".join(lines))
    return str(folder / "pairs.txt")


# The worst pairs of a card are shown, whatever their names lead to.
def test_a_sparse_file_is_not_shown(tmp_path):
    names = [f"{row}.jpg" for row in range(40)]
    for name in names:
        with open(tmp_path / name, "wb") as file:
            file.truncate(600 << 20)
    given = {"pair_lists": write_pairs(tmp_path, names), "card_dir": f"{tmp_path}/card"}
    with bounded():
        evaluate(tmp_path, bootstrap_samples=2, **given)


# Else, who repeats a stranger's card would publish images of his own.
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_card_does_not_choose_whose_images_are_shown(tmp_path, scheme, monkeypatch):
    theirs, new = tmp_path / "theirs", tmp_path / "new"
    theirs.mkdir()
    names = [f"{row}.png" for row in range(40)]
    for name in names:
        (tmp_path / name).write_bytes(encode(np.full((8, 8, 3), 99, np.uint8)))
    write_pairs(theirs, names)
    monkeypatch.chdir(theirs)
    given = {"pair_lists": "pairs.txt", "image_dir": f"{scheme}{tmp_path}"}
    evaluate(theirs, bootstrap_samples=2, card_dir=str(theirs / "card"), **given)
    repeat(theirs / "card/card.json", card_dir=str(new))
    pages = [(folder / "card.html").read_text() for folder in (theirs / "card", new)]
    assert pages[0].count("data:image/jpeg") > pages[1].count("data:image/jpeg") == 0
