"""Template pooling and the files of its protocols, by hand and against plain loops."""

import numpy as np
import pytest

from plsc_tf.evaluation import lists
from plsc_tf.evaluation.templates import find, pool


def plain_pooling(features, templates, media):
    """The definition: media means, their sum, its direction; template by template."""
    pooled = []
    for template in np.unique(templates):
        inside = templates == template
        rows = [inside & (media == one) for one in np.unique(media[inside])]
        total = np.sum([features[one].mean(axis=0) for one in rows], axis=0)
        pooled.append(total / np.linalg.norm(total))
    return np.array(pooled)


def test_media_are_averaged_then_added():
    # Template 7: a video of two frames, (0, 1), (0, 3), and a picture (2, 0).
    rows = np.array([[0, 1], [0, 3], [2, 0], [5, 0.0]])
    ids, found = pool([rows], [7, 7, 7, 3], [1, 1, 2, 1])
    np.testing.assert_array_equal(ids, [3, 7])
    half = np.sqrt(0.5)
    np.testing.assert_allclose(found, [[1, 0], [half, half]])


@pytest.mark.parametrize("block", [1, 7, 200])
def test_pooling_in_blocks_equals_the_definition(block):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 6))
    templates, media = rng.integers(0, 30, 200), rng.integers(0, 4, 200)
    weights = rng.uniform(0.1, 1, 200)
    blocks = (features[start : start + block] for start in range(0, 200, block))
    _, found = pool(blocks, templates, media, weights)
    expected = plain_pooling(features * weights[:, None], templates, media)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_templates_without_images_are_named():
    with pytest.raises(ValueError, match=r"of pairs.txt. .*first=\[5\]"):
        find(np.array([1, 2]), np.array([1, 5]), "pairs.txt")


def test_files_of_the_protocol_are_read():
    text = b"1.jpg 5 70\n\n2.jpg 6 71\n"
    names, templates, media = lists.read_template_media(text, "m")
    assert names == ("1.jpg", "2.jpg")
    assert (templates.tolist(), media.tolist()) == ([5, 6], [70, 71])
    left, right, same = lists.read_template_pairs(b"5 6 0\n5 5 1\n", "p")
    assert (left.tolist(), right.tolist()) == ([5, 5], [6, 5])
    assert same.tolist() == [False, True]
    found = lists.read_subjects(b"TEMPLATE_ID,SUBJECT_ID,FILENAME\n9,4,a\n2,3,b\n", "s")
    assert [column.tolist() for column in found] == [[2, 9], [3, 4]]


def test_names_with_blanks_end_at_tabs():
    names, *_ = lists.read_pair_list(b"a 1.jpg\tb 1.jpg\t1\nc\td 0\n", "p")
    assert names == ("a 1.jpg", "b 1.jpg", "c", "d")
    found = lists.read_identity_list(b"a 1.jpg\tAnn Bo\n", "l")
    assert found == (("a 1.jpg",), ("Ann Bo",))
    text = b"a 1.jpg\t\nb.jpg 0\nc 2.jpg\tmore\nd.jpg\t3\n"
    assert lists.read_names(text, "n") == ("a 1.jpg", "b.jpg", "c 2.jpg", "d.jpg")


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (lists.read_pair_list, b"a b 1\na b 2\n", r"f, line 2: .*: 'a b 2'"),
        (lists.read_pair_list, b"\n", "f is empty"),
        (lists.read_pair_list, b"\xff\xfe", "f is not UTF-8 text"),
        (lists.read_identity_list, b"a\n", "f, line 1: expected 'name identity'"),
        (lists.read_names, b"a\nb\na\n", "f contains 'a' twice"),
        (lists.read_template_media, b"1.jpg 5 x\n", "f, line 1: expected 'image"),
        (lists.read_template_media, b"1.jpg 5 9" + b"9" * 20, "f, line 1: expected"),
        (lists.read_template_pairs, b"#1 2 0\n3 4 0\n", "f: expected 'template templ"),
        (lists.read_template_pairs, b"1 2 0\n1 2\n", "f: expected 'template template"),
        (lists.read_template_pairs, b"1 2 3\n", "label 1 or 0"),
        (lists.read_template_pairs, b"", "Received an empty file"),
        (lists.read_subjects, b"T,S\n1,2\n1,3\n", "f: template 1 has several subjects"),
        (lists.read_subjects, b"T,S\n1,9" + b"9" * 20, "f, line 2: expected"),
        (lists.read_subjects, b"T,S\n1,x\n", "f, line 2: expected 'template,subject'"),
    ],
)
def test_wrong_lines_are_named(read, text, message):
    with pytest.raises(ValueError, match=message):
        read(text, "f")
