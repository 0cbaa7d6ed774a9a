"""Lists over named pictures, and the evaluation of saved embeddings."""

import numpy as np

from plsc_tf.data import alignment
from plsc_tf.jobs.embed import command as embedding
from plsc_tf.jobs.evaluate import command
from plsc_tf.jobs.evaluate.reproduce import reproduce
from plsc_tf.options.settings import Settings


def detected(names):
    """Scores of the detector, to weight pictures with."""
    return 0.5 + np.arange(len(names)) % 5 / 10


def write_lists(folder, names, ids, scale=7):
    """pairs.txt, known.txt, unknown.txt and an IJB folder over named images.

    Faces lie where they are expected in images of 112 / scale pixels.
    """
    a, b = np.random.default_rng(1).integers(0, len(names), (2, 600))
    b = np.where(np.arange(600) % 2 == 0, a - a % 4 + (a + 1) % 4, b)
    keep = a != b
    sides = zip(a[keep], b[keep], strict=True)
    lines = [f"{names[i]} {names[j]} {int(ids[i] == ids[j])}" for i, j in sides]
    (folder / "pairs.txt").write_text("\n".join(lines))
    known = [f"{names[i]} {ids[i]}" for i in range(0, len(names), 4) if ids[i] % 2]
    sought = [f"{names[i]} {ids[i]}" for i in range(len(names)) if i % 4]
    (folder / "known.txt").write_text("\n".join(known))
    (folder / "unknown.txt").write_text("\n".join(sought))
    meta = folder / "set" / "meta"
    meta.mkdir(parents=True)
    # Two templates of each person: the first two pictures, one media, and the others.
    media = [f"{name} {i // 2} {i // 2 + i % 4 // 3}" for i, name in enumerate(names)]
    (meta / "x_face_tid_mid.txt").write_text("\n".join(media))
    points = " ".join(f"{value:.5f}" for value in alignment.REFERENCE.ravel() / scale)
    scores = zip(names, detected(names), strict=True)
    faces = [f"{name} {points} {score}" for name, score in scores]
    (meta / "x_name_5pts_score.txt").write_text("\n".join(faces))
    count = len(names) // 2
    places = [(i, j) for i in range(count) for j in range(i)]
    pairs = [f"{i} {j} {int(ids[2 * i] == ids[2 * j])}" for i, j in places]
    (meta / "x_template_pair_label.txt").write_text("\n".join(pairs))
    rows = [f"{i},{ids[2 * i]}" for i in range(count)]
    header = "TEMPLATE_ID,SUBJECT_ID\n"
    (meta / "x_1N_gallery_G1.csv").write_text(header + "\n".join(rows[::4]))
    (meta / "x_1N_probe_mixed.csv").write_text(header + "\n".join(rows[1::2]))
    return a[keep], b[keep]


def evaluate(folder, **options):
    options = {"embeddings": str(folder / "faces.npy")} | options
    return dict(command.evaluate(Settings.from_values(**options)))


def embed(run_dir, folder, **options):
    """Embeds a folder's photos with a run's model; returns (embeddings, the table)."""
    options = {
        "checkpoint_dir": str(run_dir),
        "images": str(folder / "photos"),
        "output": str(folder / "faces.npy"),
        "num_replicas": 2,
        "test_batch_size": 2,
    } | options
    table = dict(embedding.embed(Settings.from_values(**options)))
    return np.load(table["embeddings"]), table


def repeat(card, **options):
    """Evaluates again as a card says; returns whether the results are the same."""
    settings = Settings.from_values(reproduce=str(card), **options)
    return dict(reproduce(settings))["reproduced"]
