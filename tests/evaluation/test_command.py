"""The command on saved embeddings: lists, templates, searches and cards."""

import hashlib
import json

import numpy as np
import pytest
from PIL import Image

from plsc_tf.evaluation import verification
from tests.evaluation.saved_embeddings import detected, evaluate, repeat, write_lists
from tests.evaluation.test_templates import plain_pooling


def people_rows():
    """Embeddings of four pictures of each of 24 people, and the people's numbers."""
    rng, ids = np.random.default_rng(0), np.repeat(np.arange(24), 4)
    return rng.normal(size=(24, 16))[ids] + 0.7 * rng.normal(size=(96, 16)), ids


@pytest.fixture
def saved(tmp_path):
    """Saved embeddings with names beside them, and lists over them."""
    rows, ids = people_rows()
    names = [f"p{i:03d}.jpg" for i in range(len(rows))]
    np.save(tmp_path / "faces.npy", rows)
    # Some editors begin a file with this mark.
    (tmp_path / "faces.txt").write_text("\ufeff" + "\n".join(names), encoding="utf-8")
    left, right = write_lists(tmp_path, names, ids)
    return tmp_path, rows, ids, left, right


def test_pairs_of_saved_embeddings(saved):
    folder, rows, ids, left, right = saved
    table = evaluate(folder, pair_lists=(str(folder / "pairs.txt"),))
    expected = verification.verify(rows, left, right, ids[left] == ids[right])
    assert table["pairs: accuracy"] == f"{expected.accuracy:.5f} ± {expected.std:.5f}"
    assert table["pairs: EER"] == f"{expected.eer:.5f}"
    assert table["pairs: XNorm"] == f"{expected.xnorm:.5f}"
    assert table["pairs: TAR@FAR=0.1"] == f"{expected.tar_at_far[0.1]:.5f}"
    assert table["pairs: TAR@FAR=1e-06"].startswith("n/a (")
    # insightface interpolates val@FAR, whatever stands behind it.
    told = f"; insightface's interpolation gives {expected.val_at_far:.5f}"
    assert told in table["pairs: val@FAR=0.001"]
    assert table["pairs: pairs"] == len(left)
    assert 0.6 < expected.accuracy < 0.99, "the case must not be trivial"


# Who wrote one list would otherwise choose what the card says of the others.
def test_each_set_has_a_name_of_its_own(saved):
    path = saved[0] / "pairs.txt"
    others = [path.with_name(name) for name in ("pairs_2.txt", "training set.txt")]
    for other in others:
        other.write_text(path.read_text())
    paths = *[str(path)] * 3, *map(str, others)
    table = evaluate(saved[0], pair_lists=paths, plot_dir=str(saved[0]))
    names = {name.partition(":")[0] for name in table}
    assert names >= {"pairs", "pairs 2", "pairs 3", "pairs_2", "training set 2"}
    assert len([*saved[0].glob("*_roc.svg")]) == 5


def test_templates_and_searches_of_saved_embeddings(saved):
    folder, rows, ids, *_ = saved
    table = evaluate(
        folder,
        template_dirs=(str(folder / "set"),),
        gallery=str(folder / "known.txt"),
        probes=str(folder / "unknown.txt"),
    )
    # Of a person's four pictures, the first two are one media.
    order = np.arange(len(rows))
    media = order // 2 + order % 4 // 3
    pooled = plain_pooling(rows * detected(rows)[:, None], order // 2, media)
    people = ids[::2]
    low, high = np.tril_indices(len(pooled), -1)
    cosines, same = (pooled @ pooled.T)[low, high], people[low] == people[high]
    limit = np.sort(cosines[~same])[::-1][int(0.1 * np.sum(~same))]
    assert table["x: TAR@FAR=0.1"] == f"{np.mean(cosines[same] > limit):.5f}"
    assert (table["x: templates"], table["x: images"]) == (48, 96)
    # The first template of every second person is known; all second ones are sought.
    scores = pooled[1::2] @ pooled[::4].T
    own = np.arange(0, 24, 2)
    rank_1 = np.mean(scores[own].argmax(axis=1) == own // 2)
    assert table["x gallery_G1: rank-1"] == f"{rank_1:.5f}"
    assert table["x gallery_G1: probes without"] == 12
    # The list: the first picture of every second person, the others are sought.
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    sought = np.flatnonzero(np.arange(len(rows)) % 4)
    mated = sought[ids[sought] % 2 == 1]
    found = (unit[mated] @ unit[4::8].T).argmax(axis=1) * 2 + 1
    assert table["unknown: rank-1"] == f"{np.mean(found == ids[mated]):.5f}"
    assert table["unknown: gallery entries"] == 12


def test_the_card_of_saved_embeddings(saved):
    folder, rows, ids, left, right = saved
    kinds = np.where(ids < 22, "many", "two")
    lines = [f"p{i:03d}.jpg {kind}" for i, kind in enumerate(kinds)]
    (folder / "groups.txt").write_text("\n".join(lines))
    table = evaluate(
        folder,
        pair_lists=(str(folder / "pairs.txt"),),
        card_dir=str(folder / "card"),
        plot_dir=str(folder / "plots"),
        card_far=0.05,
        bootstrap_samples=20,
        groups=str(folder / "groups.txt"),
    )
    card = json.loads((folder / "card" / "card.json").read_text())
    content = (folder / "faces.npy").read_bytes()
    assert card["model"]["sha256"] == hashlib.sha256(content).hexdigest()
    one = card["sets"]["pairs"]
    text = (folder / "pairs.txt").read_bytes()
    assert one["sha256"] == hashlib.sha256(text).hexdigest()
    best = one["threshold"]
    assert f"{best['cosine']:.5f}" in table["pairs: cosine threshold at FAR=0.05"]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    same = (ids[left] == ids[right]) & (ids[left] < 22)
    missed = np.sum(unit[left] * unit[right], axis=1)[same] <= best["cosine"]
    found = one["groups"]["fnmr"]["groups"]["many"]
    assert found["value"] == pytest.approx(missed.mean())
    assert f"{missed.mean():.5f}" in table["pairs: FNMR of many"]
    assert table["pairs: FMR of two"] == "n/a (2 identities; needs 10)"
    assert [pair["kind"] for pair in one["worst"]].count("false accept") == 8
    assert one["worst"][0]["cosine"] > one["worst"][7]["cosine"]
    page = (folder / "card" / "card.html").read_text()
    assert "data:image" not in page  # the lists name no files here
    assert ">0.01</text>" in page and "mathdefault" not in page  # the ROC's axis
    charts = sorted(chart.name for chart in (folder / "plots").iterdir())
    kinds = ("det", "discard", "histogram", "roc")
    assert charts == [f"pairs_{kind}.{end}" for kind in kinds for end in ("png", "svg")]
    shown = table["pairs: threshold"]
    assert f"{best['best_squared_l2']:.5f}" in shown
    assert f"{best['best_cosine']:.5f}" in shown


def test_the_card_of_saved_embeddings_shows_images_that_lists_name(saved):
    folder, rows, *_ = saved
    for number in range(len(rows)):
        color = (number, 2 * number, 255 - number)
        Image.new("RGB", (20, 20), color).save(folder / f"p{number:03d}.jpg")
    lists = {"pair_lists": (str(folder / "pairs.txt"),), "bootstrap_samples": 0}
    evaluate(folder, **lists, card_dir=str(folder / "card"))
    page = (folder / "card" / "card.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 32  # 8 pairs of both kinds
    # A stranger's run could have a link to the folder of another card.
    (folder / "link").symlink_to(folder / "card")
    with pytest.raises(ValueError, match="or it is a link"):
        evaluate(folder, **lists, card_dir=f"{folder}/link/.")
    # A stranger's list could show a private image in a card that is published.
    (folder / "p000.jpg").rename(folder.parent / "private.jpg")
    for number in range(len(rows)):
        path = folder / f"p{number:03d}.jpg"
        path.unlink(missing_ok=True)
        path.symlink_to("../private.jpg")
    evaluate(folder, **lists, card_dir=str(folder / "other"))
    assert "data:image/jpeg" not in (folder / "other" / "card.html").read_text()


def test_models_are_compared_on_the_same_sets(saved, caplog):
    folder, rows, *_ = saved
    lists = {"gallery": "known.txt", "probes": "unknown.txt", "pair_lists": "pairs.txt"}
    options = {name: str(folder / path) for name, path in lists.items()}
    options["bootstrap_samples"], path = 20, folder / "first" / "card.json"
    evaluate(folder, **options, card_dir=str(folder / "first"))
    worse = rows + np.random.default_rng(0).normal(size=rows.shape)
    np.save(folder / "faces.npy", worse)
    options |= {"card_dir": str(folder / "new"), "compare": (str(path),)}
    # The other card has no Cllr.
    evaluate(folder, **options, calibrate="isotonic")
    new = folder / "new" / "card.json"
    assert repeat(new).startswith("yes, all ")
    with pytest.raises(FileNotFoundError, match="mine"):  # not the card's embeddings
        repeat(new, checkpoint_dir="mine")
    forged = json.loads(new.read_text())
    forged["data"]["sha256"] = forged["model"]["sha256"]
    forged["model"] |= {"sha256": "of another model", "checkpoint": "runs/5"}
    (folder / "forged.json").write_text(json.dumps(forged))
    with pytest.raises(ValueError, match="was of another model.* checkpoint was True"):
        repeat(folder / "forged.json")
    np.save(folder / "faces.npy", rows)
    with pytest.raises(ValueError, match="differ: model sha256 was .* and is"):
        repeat(new)
    page = (folder / "new" / "card.html").read_text()
    card = json.loads(path.read_text())
    accuracy = card["sets"]["pairs"]["figures"]["accuracy"]["value"]
    assert f'<td class="number">{accuracy:.5f}</td>' in page
    # det, roc and discard of pairs; det, cmc and fnir of the search.
    assert page.count(f">{folder / 'first'}</text>") == 6
    card["sets"]["pairs"]["sha256"] = ""
    path.write_text(json.dumps(card))
    evaluate(folder, **options)
    assert "has no set pairs with the same contents" in caplog.text
    for given, message in (
        ({}, "must have options"),
        ({"dataset_name": "my.code"}, "code of its own, dataset_name=my.code"),
        ({"saved_model": "run/export"}, "names an export, which is a program"),
        ({"bootstrap_samples": 10**9}, "asks for many draws"),
    ):
        path.write_text(json.dumps(card | {"options": given}))
        with pytest.raises(ValueError, match=message):
            repeat(path)
    huge = {"sets": {"a": {"curves": {"cmc": [1e308, -1e308]}}}}  # cannot be drawn
    for change, found in (
        ({"version": 2}, "version=2"),
        ({"sets": {"a": {}}}, "curves"),
        (huge, "Not a curve"),
    ):
        path.write_text(json.dumps(card | change))
        with pytest.raises(ValueError, match=rf"\(version 1\).*Received: .*{found}"):
            evaluate(folder, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs pair_lists, template_dirs, .* or protocol=all_pairs"),
        ({"gallery": "known.txt"}, "Set gallery and probes together"),
        ({"pair_lists": ("nowhere.txt",)}, "list 'nowhere.txt' does not exist"),
        ({"template_dirs": ("nowhere",)}, "must contain a meta folder"),
        ({"val_targets": "lfw", "pair_lists": "pairs.txt"}, "instead of val_targets"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(tmp_path, options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        evaluate(tmp_path, **options)


def test_names_that_are_not_there_are_told(saved):
    folder, *_ = saved
    lines = [f"p00{i}.jpg nobody.jpg 1" for i in range(9)] + ["p000.jpg p001.jpg 0"]
    (folder / "bad.txt").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="lacks 1 of 10 images, such as 'nobody.jpg'"):
        evaluate(folder, pair_lists=(str(folder / "bad.txt"),))
    np.save(folder / "faces.npy", np.eye(96) * (np.arange(96) != 5))
    with pytest.raises(ValueError, match=r"row=\[5\], length=\[0"):
        evaluate(folder, pair_lists=(str(folder / "pairs.txt"),))
    (folder / "faces.txt").write_text("one\ntwo")
    with pytest.raises(ValueError, match=r"each of the 96 rows .*names=2"):
        evaluate(folder, pair_lists=(str(folder / "pairs.txt"),))


# Kilobytes of a list, or an empty file of that length, filled the memory.
def test_lists_and_rows_are_limited(saved):
    folder, *_ = saved
    for name in ("gallery", "probes"):
        (folder / f"{name}.txt").write_text("p000.jpg 7\n" * 400)
    lists = {name: str(folder / f"{name}.txt") for name in ("gallery", "probes")}
    np.save(folder / "faces.npy", np.zeros((96, 1 << 16), np.float16))
    with pytest.raises(ValueError, match="again and again.*names=400"):
        evaluate(folder, **lists)
    (folder / "faces.txt").unlink()
    np.save(folder / "faces.npy", np.zeros((4_000_001, 1), np.float16))
    with pytest.raises(ValueError, match="needs names in .*faces.txt"):
        evaluate(folder, **lists)


@pytest.mark.parametrize("option", ["card_dir", "plot_dir"])
def test_a_folder_that_cannot_be_made_is_told_before_the_work(saved, option):
    folder, *_ = saved
    (folder / "pairs.txt").write_text("not read\n")
    lists = {"pair_lists": (str(folder / "pairs.txt"),)}
    with pytest.raises(FileExistsError, match="faces.txt"):
        evaluate(folder, **lists, **{option: str(folder / "faces.txt")})
