"""Lists and embeddings made by an attacker: bounded memory."""

import numpy as np

from plsc_tf.evaluation.identification import search
from tests.data.conftest import bounded
from tests.evaluation.saved_embeddings import evaluate


# The scores of a list of one name took a thousand times its size.
def test_a_gallery_of_one_person_takes_little_memory():
    gallery, probes = np.ones((100_000, 1)), np.ones((1024, 1))
    with bounded():
        found = search(gallery, np.zeros(100_000), probes, np.zeros(1024))
    assert (found.ranks == 1).all()


# The worst pairs of a card are shown, whatever their names lead to.
def test_a_sparse_file_is_not_shown(tmp_path):
    np.save(tmp_path / "faces.npy", np.eye(40))
    names = [f"{row}.jpg" for row in range(40)]
    (tmp_path / "faces.txt").write_text("\n".join(names))
    lines = [f"{k}.jpg {k + 1}.jpg {k % 4 // 2}\n" for k in range(0, 40, 2)]
    (tmp_path / "pairs.txt").write_text("".join(lines))
    for name in names:
        with open(tmp_path / name, "wb") as file:
            file.truncate(600 << 20)
    given = {"pair_lists": f"{tmp_path}/pairs.txt", "card_dir": f"{tmp_path}/card"}
    with bounded():
        evaluate(tmp_path, bootstrap_samples=2, **given)
