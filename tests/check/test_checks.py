"""The data check of lists and folders: it counts and names every finding."""

import os
import pickle
import sys

import numpy as np
import pytest

from plsc_tf.data.checks import report
from plsc_tf.data.checks.check import check, find_leaks
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listings import Item, open_listing
from plsc_tf.data.checks.survey import ROW
from plsc_tf.data.images import encode
from plsc_tf.data.readers.layouts import DataRequest
from tests.check.conftest import pixels


def counts(result):
    """{kind: count} of a result."""
    return {item["kind"]: item["count"] for item in result.report["findings"]}


def places(result, kind):
    """Where a kind was found, with the detail."""
    for item in result.report["findings"]:
        if item["kind"] == kind:
            return [f"{found['where']}: {found['detail']}" for found in item["first"]]
    return []


def run(folder, name="image_list", options=(), **fields):
    return check(name, DataRequest(dataset_dir=str(folder), **fields), **dict(options))


@pytest.mark.parametrize("name", ["image_list", "folder"])
def test_progress_is_the_share_that_was_examined(write_list, name, caplog, monkeypatch):
    monkeypatch.setattr("plsc_tf.progress.LOG_EVERY_S", 0)
    files = [f"{k % 4}/{k}.png" for k in range(400)]
    for k in range(4):
        (write_list({}, []) / "images" / str(k)).mkdir()
    lines = [f"images/{file} {k % 4}" for k, file in enumerate(files)]
    folder = write_list({file: encode(pixels(0)) for file in files}, lines)
    run(folder / "images" if name == "folder" else folder, name)
    told = [line for line in caplog.messages if line.startswith("checking: ")]
    assert len(told) > 10 and "192 of 400 images (48%)" in told[5]
    assert "400 of 400 images (100%)" in told[-1]


def test_a_sound_list(sound):
    result = run(sound, num_classes=3)
    assert result.report["sound"] and counts(result) == {}
    assert result.report["pictures"] == 6
    assert result.report["classes"] == {
        "num_classes": 3,
        "empty": 0,
        "min": 2,
        "median": 2.0,
        "max": 2,
        "histogram": {"1": 0, "2-3": 3},
    }


def test_all_that_can_be_wrong_with_lines_and_files(write_list):
    files = {f"{k}.png": encode(pixels(k)) for k in range(4)}
    files["cut.jpg"] = encode(pixels(9), "JPEG")[:-50]
    files["page.jpg"] = b"<html>"
    files["none.jpg"] = b""
    folder = write_list(
        files,
        [
            "images/0.png 0",
            "images/1.png",
            "images/1.png one",
            "images/1.png 1.0",
            "images/2.png 5",
            "images/2.png -1",
            "images/gone.png 1",
            "images/cut.jpg 1",
            "images/page.jpg 1",
            "images/none.jpg 1",
            "images/3.png 3",
        ],
    )
    result = run(folder, num_classes=5)
    assert not result.report["sound"]
    assert counts(result) == {
        "bad_line": 1,
        "label_not_whole": 2,
        "label_out_of_range": 2,
        "missing_file": 1,
        "damaged_image": 1,
        "not_an_image": 1,
        "empty": 1,
        # The two labels of 2.png are out of range, and differ.
        "conflicting_labels": 2,
        # 0, 1 and 3 have pictures or lines.
        "empty_classes": 2,
        "single_picture_classes": 2,
    }
    assert "label.txt, line 7 (images/gone.png)" in places(result, "missing_file")[0]
    first, _ = places(result, "label_out_of_range")
    assert first.endswith("line 5 (images/2.png): label 5")
    assert "labels 2, 4" in places(result, "empty_classes")[0]
    assert result.report["pictures"] == 11


def test_copies_and_conflicts(write_list):
    one, other = pixels(1), pixels(2)
    files = {
        "a.png": encode(one, compress_level=1),
        "b.png": encode(one, compress_level=1),
        "c.png": encode(one, compress_level=9),
        "d.png": encode(other),
        "e.png": encode(other),
        "f.png": encode(pixels(3)),
    }
    lines = ["a 0", "b 0", "c 0", "d 0", "e 1", "f 1", "f 1"]
    lines = ["images/" + line.replace(" ", ".png ") for line in lines]
    folder = write_list(files, lines)
    result = run(folder)
    expected = {"same_bytes": 2, "same_pixels": 1, "conflicting_labels": 2}
    assert counts(result) == expected
    (conflict,) = places(result, "conflicting_labels")
    assert "label 0 at" in conflict and "line 5 (images/e.png)" in conflict
    assert "line 2 (images/b.png): same as " in places(result, "same_bytes")[0]
    cleaned = folder / "cleaned.txt"
    assert report.write_cleaned_list(str(cleaned), result.listing, result.table) == 2
    assert cleaned.read_text() == "images/a.png 0\nimages/f.png 1\n"


def _write_bin(folder, name, contents):
    content = pickle.dumps((contents, [True] * (len(contents) // 2)))
    (folder / f"{name}.bin").write_bytes(content)


def test_leaks_into_verification_sets(sound):
    same_bytes = (sound / "images/1.png").read_bytes()
    same_pixels = encode(pixels(2), compress_level=1)
    assert same_pixels != (sound / "images/2.png").read_bytes()
    _write_bin(sound, "lfw", [same_bytes, same_pixels, encode(pixels(50)), b"junk"])
    result = run(sound, options=dict(val_targets=("lfw",)))
    assert counts(result) == {"leak": 2, "val_damaged": 1}
    leaks = places(result, "leak")
    assert leaks[0].endswith("lfw.bin, image 0") and "(images/1.png)" in leaks[0]
    assert leaks[1].endswith("lfw.bin, image 1") and "(images/2.png)" in leaks[1]
    assert "lfw.bin, image 3" in places(result, "val_damaged")[0]
    report.write_cleaned_list(str(sound / "c.txt"), result.listing, result.table)
    kept = [line.split()[0] for line in (sound / "c.txt").read_text().splitlines()]
    assert kept == [f"images/{k}.png" for k in (0, 3, 4, 5)]
    (sound / "lfw.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    result = run(sound, options=dict(val_targets=("lfw",)))
    assert "refused" in places(result, "val_damaged")[0]


# Else, the check would read good images, and the training those that it should refuse.
def test_names_that_lead_through_links(write_list):
    lines = ["images/link/../0.png 0", "images/0.png 0"]
    folder = write_list({"0.png": b"damaged"}, lines)
    (folder / "good/images").mkdir(parents=True)
    (folder / "good/0.png").write_bytes(encode(pixels(0)))
    (folder / "images/link").symlink_to(folder / "good/images")
    assert counts(run(folder)) == {"not_an_image": 2}


def test_similar_pictures_are_found_on_request(write_list):
    smooth = np.add.outer(np.arange(64) * 2, np.arange(72) % 40 * 3)[..., np.newaxis]
    picture = np.clip(smooth * [1.0, 0.9, 0.8], 0, 255).astype(np.uint8)
    folder = write_list({"0.png": encode(picture)}, ["images/0.png 0"])
    near = encode(np.clip(picture.astype(int) + 3, 0, 255).astype(np.uint8), "JPEG")
    _write_bin(folder, "val", [near, encode(pixels(8))])
    assert "near_leak" not in counts(run(folder, options=dict(val_targets=("val",))))
    result = run(folder, options=dict(val_targets=("val",), near=True))
    assert counts(result)["near_leak"] == 1
    assert "val.bin, image 0" in places(result, "near_leak")[0]


def test_class_folders(tmp_path):
    for label, name in enumerate(["b", "a", "c"]):
        (tmp_path / name).mkdir()
        for number in range(label + 1):
            content = encode(pixels(10 * label + number))
            (tmp_path / name / f"{number}.png").write_bytes(content)
    (tmp_path / "a/notes.txt").write_text("")
    (tmp_path / "loose.png").write_bytes(encode(pixels(77)))
    (tmp_path / "c/9.png").write_bytes((tmp_path / "b/0.png").read_bytes())
    os.symlink(tmp_path / "nowhere", tmp_path / "a/x.jpg")
    result = run(tmp_path, "folder")
    assert counts(result) == {
        "missing_file": 1,
        "conflicting_labels": 2,
        "single_picture_classes": 1,
        "file_not_read": 1,
        "outside_classes": 1,
    }
    report.write_cleaned_list(str(tmp_path / "label.txt"), result.listing, result.table)
    expected = [f"a/{k}.png 0" for k in (0, 1)] + [f"c/{k}.png 2" for k in (0, 1, 2)]
    assert (tmp_path / "label.txt").read_text().splitlines() == expected
    assert counts(run(tmp_path, "folder", num_classes=2))["label_out_of_range"] == 4


def test_a_list_has_only_paths_that_are_read_as_written(tmp_path):
    # Else, the label of " a.png" would be that of "a.png", in another class.
    names = b"a.png", b" a.png", b"a.png ", b"b\n.png", b"\xef\xbb\xbfc.png", b"d e.png"
    entries = dict(zip(names, range(6), strict=True)).items
    assert report.write_list(f"{tmp_path}/list.txt", lambda: iter(entries())) == 2
    assert (tmp_path / "list.txt").read_text() == "a.png 0\nd e.png 5\n"


def test_a_label_of_any_size_takes_no_memory(write_list):
    files = {"0.png": encode(pixels(0)), "1.png": encode(pixels(1))}
    result = run(write_list(files, ["images/0.png 0", f"images/1.png {10**17}"]))
    assert counts(result)["empty_classes"] == 10**17 - 1
    assert "labels 1, 2, 3" in places(result, "empty_classes")[0]


def test_labels_offset_and_what_a_module_says(sound):
    assert counts(run(sound, labels_offset=1, num_classes=2))["label_out_of_range"] == 2
    assert run(sound, "ms1m").report["classes"]["num_classes"] == 85742


def test_drawn_pictures_can_be_checked_too():
    request = DataRequest(num_classes=3, num_examples=6, image_size=(16, 16))
    result = check("mock", request)
    assert result.report["sound"] and result.report["pictures"] == 6
    assert open_listing("mock", request).folder is None


def test_other_file_systems(sound):
    import tensorflow as tf

    tf.io.gfile.copy(str(sound / "label.txt"), "ram://set/label.txt", True)
    for k in range(5):
        name = f"images/{k}.png"
        tf.io.gfile.copy(str(sound / name), f"ram://set/{name}", True)
    assert counts(run("ram://set")) == {"missing_file": 1}


OWN_MODULE = """
from plsc_tf.data.readers import layouts
from plsc_tf.data.readers.image_files import image_list
from plsc_tf.data.readers.python import from_generator

def layout(request):
    if request.split == "list":
        return layouts.images_in_list(request)
    return layouts.SourceLayout(request, examples)

def examples(request):
    if request.split == "source":
        return image_list(request.dataset_dir)

    def pictures():
        yield open(request.dataset_dir + "/images/0.png", "rb").read(), 0
        yield b"junk", 7
        raise ValueError("out of pictures " * 99)

    return from_generator(pictures, name="own", num_classes=3)
"""


@pytest.fixture
def own(write_list, monkeypatch):
    """A module of one's own over a list of 40 pictures; two of them are missing."""
    files = {f"{k}.png": encode(pixels(k)) for k in range(40)}
    folder = write_list(files, [f"images/{k}.png {k % 3}" for k in range(40)])
    for k in (22, 23):
        (folder / f"images/{k}.png").unlink()
    (folder / "own_sets").mkdir()
    (folder / "own_sets/checked.py").write_text(OWN_MODULE)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in ("own_sets", "own_sets.checked"):
        sys.modules.pop(name, None)


def test_modules_of_ones_own_are_checked_by_their_layout(own):
    (own / "label_list.txt").write_text("images/1.png 0\nimages/2.png\n")
    assert counts(run(own, "own_sets.checked", split="list"))["bad_line"] == 1


def test_sources_of_ones_own_are_read_past_bad_examples(own):
    result = run(own, "own_sets.checked", split="source")
    assert result.report["pictures"] == 40
    assert counts(result) == {"damaged_record": 2}
    bad = places(result, "damaged_record")
    assert "line 23 (" in bad[0] and "line 24 (" in bad[1]


def test_generators_are_checked_as_far_as_they_come(own):
    result = run(own, "own_sets.checked", split="other")
    assert result.report["pictures"] == 2
    found = counts(result)
    assert found["label_out_of_range"] == found["not_an_image"] == 1
    (place,) = places(result, "damaged_record")
    assert "own, from example 2 on" in place and len(place) < 350


def test_difference_hashes_are_compared_bit_by_bit():
    random = np.random.default_rng(3)
    wanted = [int(k) for k in random.integers(1, 2**63, 5, np.uint64)]
    table, expected = np.zeros(400, ROW), []
    for row in range(400):
        bits = random.choice(64, row % 7, replace=False)
        near = wanted[row % 5] ^ sum(1 << int(bit) for bit in bits)
        table["near_hash"][row] = near
        if min((near ^ other).bit_count() for other in wanted) <= 3:
            expected.append(row)
    images = [("x", Item(near_hash=near)) for near in wanted]
    listing, findings = open_listing("mock", DataRequest(num_classes=2)), Findings()
    find_leaks(table, images, listing, findings)
    (leaks,) = findings.as_list()
    places = [one["where"] for one in leaks["first"]]
    assert places == [listing.describe(row) for row in expected]
    assert len(expected) > 200
