"""Verification sets: .bin files that cannot run anything, and pairs.txt."""

import collections
import io
import os
import pickle

import numpy as np
import pytest
from PIL import Image

from plsc_tf.data import images, preprocessing
from plsc_tf.data.pairs import Pairs, load_pairs, write_bin
from tests.data.pickled import Call


@pytest.fixture
def pictures(picture):
    return [picture(k, k) for k in range(4)]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("kind", ["bytes", "arrays"])
def test_bin_of_every_protocol(tmp_path, pictures, protocol, kind):
    images = [pictures[k] for k in (0, 1, 2, 0)]
    same = [True, False]
    if kind == "arrays":
        images = [np.frombuffer(data, np.uint8) for data in images]
        same = np.array(same)
    path = tmp_path / "lfw.bin"
    path.write_bytes(pickle.dumps((images, same), protocol))
    pairs = load_pairs(path)
    assert pairs.name == "lfw" and len(pairs) == 2
    # The picture that comes twice is kept once.
    assert pairs.images == pictures[:3]
    np.testing.assert_array_equal(pairs.left, [0, 2])
    np.testing.assert_array_equal(pairs.right, [1, 0])
    np.testing.assert_array_equal(pairs.same, [True, False])
    assert pairs.decoded().shape == (3, 12, 10, 3)


def test_bin_written_by_python_2(tmp_path, pictures):
    # Python 2 writes str as SHORT_BINSTRING (U), which Python 3 never does; this is
    # what pickle.dump((bins, issame), f, protocol=2) gave there.
    def text(data):
        return b"U" + bytes([len(data)]) + data

    assert all(len(data) < 256 for data in pictures)
    content = b"\x80\x02](" + text(pictures[0]) + text(pictures[1]) + b"e](\x88e\x86."
    (tmp_path / "old.bin").write_bytes(content)
    pairs = load_pairs(tmp_path / "old.bin")
    assert pairs.images == pictures[:2] and pairs.same.tolist() == [True]


def _refused(path, content, message):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_pairs(path)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_malicious_bin_is_refused_and_nothing_runs(tmp_path, pictures, protocol):
    marker = tmp_path / "ran"
    command = Call(os.system, f"touch {marker}")
    content = pickle.dumps((pictures[:2], [True], command), protocol)
    words = r"evil.bin is refused.*'posix.system'.*trust"
    _refused(tmp_path / "evil.bin", content, words)
    assert not marker.exists()


LISTS = b"]q\0" + b"".join(b"0(h%ch%clq%c" % (n, n, n + 1) for n in range(60))


@pytest.mark.parametrize(
    "content",
    [b"", b"no pickle", pickle.dumps(([b"x"] * 4, [True, True]))[:-9]]
    # Memory for a terabyte; objects under numbers whose hashes are equal; a state that
    # could be copied again and again; and a text of 2^60 brackets.
    + [b"c__builtin__\nbytearray\n(I1000000000000\ntR.", b"N" * 9 + b"p7\n."]
    + [b"ccollections\nOrderedDict\n}b.", b"c_codecs\nencode\n(Va\n%btR." % LISTS],
)
def test_damaged_bin_says_so(tmp_path, content):
    _refused(tmp_path / "cut.bin", content, "cut.bin is not a pickle of plain data")


@pytest.mark.parametrize(
    "content",
    [{"a": 1}, ([b"x"] * 3, [True]), ([1, 2], [True]), 5]
    + [([b"x", b"y"], same) for same in (5, None, "ab", [None], [[1]], [[1], 2], [])]
    + [([b"x", b"y"], np.array(True)), np.array(5)],
)
def test_bin_of_other_things_says_what_is_expected(tmp_path, content):
    expected = r"Expected .* Received: types=\[.+\], lengths=\[.+\]$"
    words = f"other.bin: ({expected}|image 0 must)"
    _refused(tmp_path / "other.bin", pickle.dumps(content), words)


@pytest.fixture
def pairs_folder(tmp_path, picture):
    for name, count in {"Ann_Lee": 2, "Bo": 1}.items():
        (tmp_path / "faces" / name).mkdir(parents=True)
        for number in range(1, count + 1):
            path = tmp_path / "faces" / name / f"{name}_{number:04d}.jpg"
            path.write_bytes(picture(number, number, kind="JPEG"))
    return tmp_path


@pytest.mark.parametrize("header", ["", "10\t300\n", "1\n"])
def test_pairs_txt(pairs_folder, header):
    text = header + "Ann_Lee\t1\t2\nAnn_Lee\t2\tBo\t1\n"
    (pairs_folder / "pairs.txt").write_text(text)
    for folder in (str(pairs_folder / "faces"), None):
        pairs = load_pairs(str(pairs_folder / "pairs.txt"), folder)
        assert len(pairs.images) == 3
        np.testing.assert_array_equal(pairs.left, [0, 1])
        np.testing.assert_array_equal(pairs.right, [1, 2])
        np.testing.assert_array_equal(pairs.same, [True, False])


def test_pairs_txt_names_missing_pictures_and_bad_lines(pairs_folder):
    path = pairs_folder / "pairs.txt"
    path.write_text("Ann_Lee\t1\t2\nBo\t1\t7\n")
    with pytest.raises(FileNotFoundError, match="lists 1 images .*Bo_0007.jpg"):
        load_pairs(path)
    path.write_text(f"{path} {path} 1\n")
    with pytest.raises(FileNotFoundError, match="lists 1 images"):
        load_pairs(path, str(pairs_folder / "faces"))
    _refused(path, b"\n", "is empty")


def test_missing_file_and_wrong_ending(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no verification set"):
        load_pairs(tmp_path / "lfw.bin")
    (tmp_path / "lfw.npz").write_bytes(b"")
    with pytest.raises(ValueError, match="must be a .bin"):
        load_pairs(tmp_path / "lfw.npz")


def test_decoded_keeps_pixels_and_names_what_it_cannot_decode(picture):
    images = [picture(1, 2), picture(3, 4)]
    pixels = Pairs("set", images, [0], [1], [True]).decoded()
    expected = [np.asarray(Image.open(io.BytesIO(data))) for data in images]
    np.testing.assert_array_equal(pixels, expected)
    stacked = Pairs("set", pixels, [0], [1], [True])
    assert stacked.decoded() is pixels and stacked.decoded((5, 4)).shape == (2, 5, 4, 3)
    mixed = Pairs("set", [*images, picture(0, 0, (5, 5))], [0], [1], [True])
    with pytest.raises(ValueError, match="differ in size.* Set image_size"):
        mixed.decoded()
    junk = Pairs("set", [*images, b"junk"], [0], [1], [True], files=tuple("abc"))
    with pytest.raises(ValueError, match="'set' cannot be decoded at c"):
        junk.decoded((6, 6))


@pytest.mark.parametrize("stored", ["bytes", "array"])
@pytest.mark.parametrize("image_size", [None, (6, 5)])
def test_some_rows_are_decoded_as_all_are(pictures, stored, image_size):
    pairs = Pairs("p", pictures, [0], [1], [True])
    if stored == "array":
        pairs = Pairs("p", pairs.decoded((8, 8)), [0], [1], [True])
    found = pairs.decoded(image_size, np.array([2, 0]))
    np.testing.assert_array_equal(found, pairs.decoded(image_size)[[2, 0]])


@pytest.mark.parametrize(
    ("left", "right", "same"), [([0], [4], [1]), ([0, 1], [1], [1]), ([], [], [])]
)
def test_impossible_pairs_are_refused(pictures, left, right, same):
    with pytest.raises(ValueError, match="left and right|of one length|no pairs"):
        Pairs("set", pictures, left, right, same)


@pytest.mark.parametrize(
    "content",
    [
        # Other ways to run things.
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        pickle.dumps(np.array([print], object)),
        # A memo number of 4 billion: Python would make room for as many entries.
        b"\x80\x02]r\xff\xff\xff\xff.",
        b"\x80\x02]p4000000000\n.",
        # A byte array of 2^62 bytes.
        b"\x80\x05\x96" + (1 << 62).to_bytes(8, "little") + b"x.",
        # Lists of lists of lists that double 60 times.
        b"\x80\x02]q\x00" + b"(h\x00h\x00lq\x00" * 60 + b".",
        # 2,000 copies of a megabyte.
        b"\x80\x02cbuiltins\nbytearray\nq\x00T\x00\x00\x10\x00"
        + bytes(1 << 20)
        + b"q\x010"
        + b"h\x00h\x01\x85R" * 2000
        + b".",
        # A list within itself.
        b"\x80\x02]q\x00h\x00a.",
        # 100 bytes with a column of a billion empty rows, each of them a list.
        pickle.dumps([[], np.zeros((10**9, 0))], protocol=2),
        # Keys whose hashes are equal: ten times as many took hours.
        pickle.dumps({k * (2**61 - 1): k for k in range(2, 99)}),
        pickle.dumps({(-1, -2): 0, (-2, -1): 0}),
        pickle.dumps({(-1, -2), (-2, -1)}, protocol=4),
        pickle.dumps(collections.OrderedDict({(-1, -2): 0}), protocol=2),
        # Lists, of 72 bytes each.
        b"\x80\x02](" + b"]" * 1_000_000 + b"e.",
    ],
)
def test_bins_that_would_run_things_or_take_hours_or_gigabytes(tmp_path, content):
    words = "bad.bin( is refused| is not a pickle|: Expected)"
    _refused(tmp_path / "bad.bin", content, words)


# Who converts a stranger's list and publishes the .bin would publish a file of theirs.
def test_a_bin_holds_images_only(tmp_path):
    (tmp_path / "secret").write_text("a password")
    (tmp_path / "pairs.txt").write_text("secret\tsecret\t1\n")
    with pytest.raises(ValueError, match="secret must be a JPEG, PNG or GIF"):
        write_bin(str(tmp_path / "o.bin"), load_pairs(str(tmp_path / "pairs.txt")))
    assert not (tmp_path / "o.bin").exists()


@pytest.mark.parametrize(
    "line", [b"Bo\tone\t2", b"A\t1\t\xff", b"A\0\t1\t2", b"A\t1\t" + b"9" * 5000]
)
def test_pairs_txt_of_other_bytes_names_the_line(pairs_folder, line):
    words = "pairs.txt, line 2: expected a line like"
    _refused(pairs_folder / "pairs.txt", b"Ann_Lee\t1\t2\n%s\n" % line, words)


# What each preprocessing leaves of a picture: where that needs no resizing, the very
# pixels. inception: 87.5 % of the sides; vgg: the shorter side is 256 for 224 pixels;
# the others: the middle.
MIDDLES = [
    ("inception", (32, 48), (28, 42), np.s_[2:30, 3:45]),
    ("vgg", (32, 48), (28, 28), np.s_[2:30, 10:38]),
    ("cifarnet", (40, 36), (32, 32), np.s_[4:36, 2:34]),
    ("lenet", (40, 36), (32, 32), np.s_[4:36, 2:34]),
]


def of_pixels(pixels, encoded=False):
    stored = [images.encode(one) for one in pixels] if encoded else pixels
    return Pairs("set", stored, [0, 2], [1, 0], [True, False])


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(("name", "stored", "size", "middle"), MIDDLES)
def test_framed_pictures_are_what_evaluation_sees(name, stored, size, middle, encoded):
    pixels = np.random.default_rng(0).integers(0, 256, (3, *stored, 3), np.uint8)
    framed = of_pixels(pixels, encoded).framed(preprocessing.build(name, size))
    expected = pixels[(slice(None), *middle)]
    np.testing.assert_array_equal(framed.decoded(), expected)
    np.testing.assert_array_equal(framed.decoded(size, [2, 1]), expected[[2, 1]])
    assert framed.decoded((8, 8)).shape == (3, 8, 8, 3)


@pytest.mark.parametrize("name", ["face", "none"])
def test_whole_pictures_need_no_frame(name):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 20, 16, 3), np.uint8)
    pairs = of_pixels(pixels)
    framed = pairs.framed(preprocessing.build(name, (8, 8)))
    assert framed.decoded((20, 16)) is pixels
    np.testing.assert_array_equal(framed.decoded(), pairs.decoded((8, 8)))


def _calfw(folder, lines, named="aligned images"):
    """CALFW's layout: all pictures in one folder beside the pairs."""
    (folder / named).mkdir(parents=True)
    for number, name in enumerate(dict.fromkeys(line.split()[0] for line in lines)):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(folder / named / name, "PNG")
    (folder / "pairs_CALFW.txt").write_text("\n".join(lines) + "\n")
    return folder / "pairs_CALFW.txt"


def test_pairs_of_calfw_and_cplfw(tmp_path):
    # As the file has them: all pairs of one person first, with the number of a fold.
    ones = [(f"A_{2 * k:04d}.jpg", f"A_{2 * k + 1:04d}.jpg", k + 1) for k in range(10)]
    twos = [(f"B_{k:04d}.jpg", f"C_{k:04d}.jpg", 0) for k in range(10)]
    lines = [f"{name} {fold}" for *pair, fold in ones + twos for name in pair]
    pairs = load_pairs(str(_calfw(tmp_path / "calfw", lines)))
    assert pairs.name == "pairs_CALFW" and len(pairs) == 20
    # Each of ten consecutive folds has one pair of each kind.
    assert pairs.same.reshape(10, 2).tolist() == [[False, True]] * 10
    named = [os.path.basename(file) for file in pairs.files]
    for fold in range(10):
        one, two = 2 * fold + 1, 2 * fold
        assert (named[pairs.left[one]], named[pairs.right[one]]) == ones[fold][:2]
        assert (named[pairs.left[two]], named[pairs.right[two]]) == twos[fold][:2]


@pytest.mark.parametrize(
    ("lines", "number"),
    [(["a.jpg 1", "b.jpg 1", "c.jpg 1"], 3), (["a.jpg 1", "b.jpg 0"], 1)],
)
def test_a_pair_of_two_lines_is_complete_and_agrees(tmp_path, lines, number):
    with pytest.raises(ValueError, match=f"line {number}: expected a pair, "):
        load_pairs(str(_calfw(tmp_path / "calfw", lines)))


def test_pairs_of_paths(pairs_folder):
    first, second = "Ann_Lee/Ann_Lee_0001.jpg", "Bo/Bo_0001.jpg"
    path = pairs_folder / "own.txt"
    path.write_text(f"{first} {second} 0\n{second} {second} 1\n")
    pairs = load_pairs(str(path))
    assert pairs.same.tolist() == [False, True]
    assert [file.partition("faces/")[2] for file in pairs.files] == [first, second]
