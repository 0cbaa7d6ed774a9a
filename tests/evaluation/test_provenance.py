"""Who is on a pair, and what a verification set's checksum covers."""

import hashlib
import pickle

import numpy as np
import pytest

from plsc_tf.data.pairs import Pairs, load_pairs
from plsc_tf.jobs.evaluate import protocols, provenance
from plsc_tf.options.settings import Settings

SIDES = np.array([[0, 0, 2], [1, 2, 3]])
SAME = np.array([True, False, True])


def test_identities_are_folders_where_these_agree_with_the_pairs():
    names = ("Ann/1.jpg", "Ann/2.jpg", "Bo/1.jpg", "Bo/2.jpg")
    people = protocols.people_of(names, SIDES, SAME)
    assert people.sides.tolist() == [[0, 0, 1], [0, 1, 1]]
    assert "folders" in people.basis


@pytest.mark.parametrize("names", [(), ("all/1.jpg", "all/2.jpg") * 2])
def test_identities_are_linked_where_nothing_names_them(names):
    people = protocols.people_of(names, SIDES, SAME)
    np.testing.assert_array_equal(np.equal(*people.sides), SAME)
    assert len(np.unique(people.sides)) == 2
    assert "does not name them" in people.basis


def test_the_number_of_groups_is_limited():
    # The time grows with its square.
    sides, same = np.arange(2002).reshape(2, -1), np.zeros(1001, bool)
    own = tuple(f"g{number}" for number in range(1001))
    with pytest.raises(ValueError, match=r"at most 1,000 groups.*groups=1001"):
        protocols.people_of((), sides, same, protocols.OWN, own)


def test_the_checksum_of_a_bin_is_that_of_the_file(tmp_path, pictures):
    path = tmp_path / "lfw.bin"
    path.write_bytes(pickle.dumps((pictures, [True, False])))
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert provenance.set_checksum(load_pairs(str(path))) == expected


@pytest.fixture
def pictures():
    """Four "pictures" that nobody decodes."""
    return [bytes([value]) * 9 for value in range(4)]


def test_the_checksum_of_listed_pairs_covers_pictures_and_pairs(pictures):
    pairs = Pairs("p", pictures, *SIDES, SAME, path="pairs.txt")
    text = b"".join(hashlib.sha256(one).digest() for one in pictures)
    for column in (*SIDES, SAME):
        text += b"".join(int(value).to_bytes(8, "little") for value in column)
    assert provenance.set_checksum(pairs) == hashlib.sha256(text).hexdigest()


def test_a_card_says_whether_mirror_images_were_left_out():
    # Without it, the card of a server, which does not flip, could not be reproduced.
    # But a card must not allow larger images.
    settings = Settings.from_values(flip=False, max_megapixels=99.0)
    assert provenance.options(settings) == {"flip": False}


def test_shared_pictures_are_found_between_sets():
    first = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), np.uint8)
    images = {"a": first, "b": [first[1], 255 - first[0]]}
    names = {"a": ("x", "y", "z"), "b": ()}
    found = provenance.overlaps(
        {key: (provenance.fingerprints(images[key]), names[key]) for key in images}
    )
    assert found["a"]["training set"]["note"].startswith("not compared")
    expected = {"pictures": 2, "same_bytes": 1, "same_pixels": 1, "first": ["y"]}
    assert found["a"]["b"] == expected
    assert found["b"]["a"]["first"] == ["image 0"]
