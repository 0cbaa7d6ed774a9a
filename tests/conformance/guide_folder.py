"""The folders and files that the guides speak of, with drawn people in them."""

import pickle

import numpy as np

from plsc_tf.data import figures, images
from tests.conversion import drawn
from tests.seeds.plsc_folder import make_train_data

PEOPLE = ("ann", "bob", "cem", "dora", "eve", "finn")
NUM_CLASSES = 50
SIZE = 112
# Eyes, nose, corners of the mouth, as ArcFace's pictures have them.
POINTS = "38.3 51.7 73.5 51.5 56.0 71.7 41.5 92.4 70.7 92.2"


def fill(folder):
    """Makes photos/, train_data/, lists, points and embeddings in a folder."""
    jpegs = {
        f"{name}/{number}.jpg": jpeg(label, number)
        for label, name in enumerate(PEOPLE)
        for number in range(4)
    }
    for root in ("photos", "faces"):
        for name, content in jpegs.items():
            path = folder / root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    (folder / "photo.jpg").write_bytes(jpeg(0, 9))
    (folder / "points.txt").write_text("".join(f"{n} {POINTS}\n" for n in jpegs))
    _lists(folder, list(jpegs))
    _train_data(folder / "train_data")


def jpeg(label, number):
    """The bytes of a JPEG of a drawn person."""
    pixels = figures.draw(0, label, number, (SIZE, SIZE))
    return images.encode(pixels, "JPEG", quality=92)


def _lists(folder, names):
    """Lists of pairs and identities, and embeddings that know the people."""
    random = np.random.default_rng(0)
    pairs = [(f"{p}/{i}.jpg", f"{p}/{i + 1}.jpg", 1) for p in PEOPLE for i in (0, 2)]
    pairs += [
        (f"{p}/{i}.jpg", f"{q}/{i}.jpg", 0)
        for p, q in zip(PEOPLE, PEOPLE[1:], strict=False)
        for i in range(4)
    ]
    random.shuffle(pairs)
    lines = [f"{left} {right} {same}\n" for left, right, same in pairs]
    (folder / "pairs.txt").write_text("".join(lines))
    known = [f"{person}/0.jpg {person}\n" for person in PEOPLE[:4]]
    (folder / "known.txt").write_text("".join(known))
    unknown = [f"{person}/{i}.jpg {person}\n" for person in PEOPLE for i in (1, 2)]
    (folder / "unknown.txt").write_text("".join(unknown))
    centers = random.normal(size=(len(PEOPLE), 16))
    rows = np.repeat(centers, 4, axis=0) + 0.3 * random.normal(size=(len(names), 16))
    np.save(folder / "faces.npy", rows.astype(np.float32))
    np.save(folder / "new.npy", rows[:1].astype(np.float32))
    (folder / "faces.txt").write_text("".join(f"{name}\n" for name in names))


def _train_data(folder):
    """PLSC's folder: pictures, label.txt, part files, verification sets."""
    labels = [number % NUM_CLASSES for number in range(2 * NUM_CLASSES)]
    make_train_data(folder.parent, labels, SIZE)
    contents = [path.read_bytes() for path in sorted((folder / "images").iterdir())]
    drawn.write_base64(folder, list(zip(contents, labels, strict=True)), files=2)
    # None of their people are trained on.
    for name, first in (("lfw", 1000), ("agedb_30", 2000)):
        same = [i % 2 == 0 for i in range(20)]
        sides = [(first + i, first + i + (i % 2)) for i in range(20)]
        pictures = [jpeg(who, k) for pair in sides for k, who in enumerate(pair)]
        (folder / f"{name}.bin").write_bytes(pickle.dumps((pictures, same)))
