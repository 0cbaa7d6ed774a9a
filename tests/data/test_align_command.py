"""`python -m plsc_tf.align`: the faces it cuts out, its report, and its resume."""

import json
import shutil

import numpy as np
import pytest
from PIL import ExifTags, Image

import plsc_tf
from plsc_tf.data.alignment import REFERENCE
from tests import commands, detectors

NEAR, FAR, TINY = REFERENCE + 60, REFERENCE * 0.5 + [5, 100], REFERENCE * 0.2 + 90
# The faces in a photograph, by its width.
FACES = {240: [NEAR], 241: [FAR, NEAR], 242: [], 243: [TINY], 245: [FAR]}
NAMES = "ann/1.png", "ann/2.jpg", "bob/none.png", "bob/tiny.png", "bob/flat.gif"


def detect_one(photos):
    return [[]]


def entries(report):
    _, *lines = map(json.loads, report.read_text().splitlines())
    return {entry["image"]: entry for entry in lines}


def pixels_of(path):
    return np.asarray(Image.open(path))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of photographs."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "in/ann").mkdir(parents=True)
    (folder / "in/bob").mkdir()
    rng = np.random.default_rng(0)
    for width, name in zip(FACES, NAMES, strict=True):
        pixels = rng.integers(0, 256, (244, width, 3), np.uint8)
        image = Image.fromarray(pixels // 64 if "flat" in name else pixels)
        image.save(folder / "in" / name)
    turned = Image.fromarray(np.rot90(pixels_of(folder / "in/ann/1.png")))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    turned.save(folder / "in/ann/turned.png", exif=exif)
    (folder / "in/bob/broken.jpg").write_bytes(b"\xff\xd8\xff no photograph")
    return folder


@pytest.fixture
def align(photos, monkeypatch):
    monkeypatch.setattr(detectors, "faces", FACES)
    options = "--images=in", "--detector=tests.detectors:detect"
    return lambda *words: commands.run("align", *options, *words, folder=photos)


def test_each_photograph_has_its_face_or_a_reason(photos, align):
    result, out = align("--output_dir=out", "--min_sharpness=500"), photos / "out"
    found = entries(photos / "out.jsonl")
    assert {name: entry["result"] for name, entry in found.items()} == {
        "ann/1.png": "aligned",
        "ann/2.jpg": "several faces",
        "ann/turned.png": "aligned",
        "bob/broken.jpg": "unreadable",
        "bob/flat.gif": "blurred",
        "bob/none.png": "no face",
        "bob/tiny.png": "small",
    }
    written = sorted(str(path.relative_to(out)) for path in out.rglob("[!.]*.*"))
    assert written == ["ann/1.png", "ann/2.jpg", "ann/turned.png"]
    wanted = plsc_tf.align_face((photos / "in/ann/1.png").read_bytes(), NEAR)
    for name in ("1.png", "turned.png"):
        np.testing.assert_array_equal(pixels_of(out / "ann" / name), wanted)
    (largest,) = found["ann/2.jpg"]["faces"]
    np.testing.assert_allclose(largest["points"], NEAR, atol=0.01)
    assert Image.open(photos / "out.png").height > 4 * 112
    assert "blurred" in result.out


def test_central_and_all_faces(photos, align):
    align("--output_dir=central", "--faces=central")
    (face,) = entries(photos / "central.jsonl")["ann/2.jpg"]["faces"]
    np.testing.assert_allclose(face["points"], NEAR, atol=0.01)
    align("--output_dir=all", "--faces=all", "--min_face_size=0")
    found = entries(photos / "all.jsonl")
    names = [face["file"] for face in found["ann/2.jpg"]["faces"]]
    assert names == ["ann/2.jpg", "ann/2.jpg-2.jpg"]
    assert (photos / "all" / names[1]).exists()
    (tiny,) = found["bob/tiny.png"]["faces"]
    assert tiny["side"] == pytest.approx(112 / 5, abs=0.1)


def test_a_killed_call_is_resumed_and_another_one_is_refused(photos, align):
    align("--output_dir=again")
    report = photos / "again.jsonl"
    before = report.read_bytes()
    lines = before.splitlines(keepends=True)
    report.write_bytes(b"".join(lines[:4]) + lines[4][:20])
    detectors.seen.clear()
    assert align("--output_dir=again").status == 0
    assert report.read_bytes() == before
    assert detectors.seen == [len(lines) - 5]  # one of the others is unreadable
    for option in "--faces=all", "--max_megapixels=8":
        result = align("--output_dir=again", option).err
        assert "other photographs or options" in result
    # Else, the faces of one folder would be taken for those of another: other people.
    shutil.copytree(photos / "in", photos / "day2")
    result = align("--output_dir=again", "--images=day2").err
    assert "other photographs or options" in result
    # Nor may an archive of photographs bring their faces along.
    shutil.copytree(photos / "again", photos / "theirs")
    shutil.copy(report, photos / "theirs.jsonl")
    assert "or a copy" in align("--output_dir=theirs").err
    assert "already exists" in align("--output_dir=in", "--images=in/ann").err
    assert "must not be in the folder" in align("--output_dir=in").err


@pytest.mark.parametrize("ending", ["jsonl", "png"])
def test_files_of_others_are_left_alone(photos, align, ending):
    path = photos / f"own_{ending}.{ending}"
    path.write_text('{"a": 1}')
    words = {"jsonl": "of a call with other photographs", "png": "already exists"}
    assert words[ending] in align(f"--output_dir=own_{ending}").err
    assert path.read_text() == '{"a": 1}'


def test_a_report_that_is_a_link_is_left_alone(photos, align):
    (photos / "token").write_text("secret")
    (photos / "linked.jsonl").symlink_to(photos / "token")
    assert align("--output_dir=linked").status
    assert (photos / "token").read_text() == "secret"


def test_faces_are_not_written_through_links(photos, align):
    # The archive of an interrupted call could bring a link to any folder.
    (photos / "begun.jsonl").write_bytes((photos / "out.jsonl").read_bytes())
    (photos / "begun").mkdir()
    (photos / "begun/ann").symlink_to(photos / "in/bob")
    assert "must not have links" in align("--output_dir=begun").err


# Otherwise, anyone who can add a photograph could replace a person's face.
@pytest.mark.parametrize("photo", ["ann.gif", "ann\nbob.gif"])
def test_no_photograph_has_the_name_of_a_face(photos, align, photo):
    more = photos / f"more{len(photo)}"
    more.mkdir()
    for name in (photo, f"{photo}-1.png"):
        shutil.copy(photos / "in/bob/flat.gif", more / name)
    result = align("--output_dir=faces", f"--images={more.name}").err
    assert "the name of a face of another one" in result and ".gif-1.png" in result


def test_a_detectors_mistakes_are_told(align, monkeypatch):
    result = align("--output_dir=few", f"--detector={__name__}:detect_one")
    told = "the faces of each photograph. Received: photographs=6, lists=1"
    assert told in result.err
    told = "cannot find the module 'retinaface' of the detector"
    assert told in align("--output_dir=wrong", "--detector=retinaface").err
    monkeypatch.setattr(detectors, "faces", dict.fromkeys(FACES, [[[1, 2]] * 5]))
    result = align("--output_dir=wrong")
    assert "in/ann/1.png: The five points of a face must not coin" in result.err


@pytest.mark.parametrize("found", [None, [None] * 6])
def test_nothing_is_no_face_or_a_mistake(photos, align, monkeypatch, found):
    (photos / "in/IMG_1.HEIC").touch()
    monkeypatch.setattr(detectors, "detect", lambda _: found)
    result = align("--output_dir=faces")
    assert "Left out files of other types: IMG_1.HEIC" in result.err
    assert ("no face" in result.out) if found else "lists=0" in result.err


@pytest.mark.parametrize(
    "name", ["../1.png", "{}/in/ann/1.png", "a/../../1.png", "./1.png"]
)
def test_names_of_a_list_stay_in_the_folder_of_faces(photos, align, name):
    (photos / "in/list.txt").write_text(name.format(photos))
    result = align("--output_dir=faces", "--images=in/list.txt")
    assert "Names in images must be relative, without '..'" in result.err


def test_points_from_a_file(photos):
    row = " ".join(map(str, NEAR.ravel()))
    names = "1.png", "2.jpg", "turned.png"
    (photos / "points.txt").write_text("".join(f"{name} {row}\n" for name in names))
    words = "--images=in/ann", "--landmarks=points.txt", "--output_dir=by_points"
    assert commands.run("align", *words, folder=photos).status == 0
    # Points are those of the stored pixels.
    stored = np.rot90(pixels_of(photos / "in/ann/1.png"))
    found = pixels_of(photos / "by_points/turned.png")
    np.testing.assert_array_equal(found, plsc_tf.align_face(stored, NEAR))


def test_mtcnn_and_the_pixels_of_scikit_image(tmp_path):
    skimage = pytest.importorskip("skimage")
    pytest.importorskip("mtcnn")
    photo = skimage.data.astronaut()
    (tmp_path / "in").mkdir()
    Image.fromarray(photo).save(tmp_path / "in/astronaut.png")
    result = commands.run("align", "--images=in", "--output_dir=faces", folder=tmp_path)
    assert result.status == 0, result
    (face,) = entries(tmp_path / "faces.jsonl")["astronaut.png"]["faces"]
    points = np.array(face["points"])
    seen = [[204, 101], [246, 103], [224, 125], [206, 140], [243, 142]]
    np.testing.assert_allclose(points, seen, atol=5)
    fit = skimage.transform.SimilarityTransform.from_estimate(points, REFERENCE)
    wanted = skimage.transform.warp(photo, fit.inverse, output_shape=(112, 112))
    assert np.abs(pixels_of(tmp_path / "faces/astronaut.png") - 255 * wanted).max() <= 1
