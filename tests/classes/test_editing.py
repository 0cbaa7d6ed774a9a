"""Checkpoints with edited classes, by hand."""

import pathlib

import numpy as np
import pytest

from plsc_tf.checkpoints import editing, manifest, rows, writer
from plsc_tf.checkpoints.editing import Edit
from plsc_tf.checkpoints.labels_map import LabelsMap
from plsc_tf.checkpoints.manifest import DamagedCheckpointError
from plsc_tf.checkpoints.rows import Rows
from plsc_tf.jobs.classes.edit import read_groups
from tests.checkpoints.small import make_content, make_rows, save
from tests.checkpoints.test_damage import flip
from tests.classes.tiny import rows_of

WEIGHT = np.arange(1, 15, dtype=np.float32).reshape(7, 2)
SLOT = WEIGHT * 10


def source(path, **state):
    """A checkpoint of seven classes with rows and a slot."""
    content = make_content(5, array=make_rows(3, WEIGHT), num_classes=7, **state)
    content.arrays["weight/velocity"] = make_rows(2, SLOT)
    writer.save(str(path), content)
    return str(path)


def ones(low, high):
    return np.ones((high - low, 2), np.float32)


@pytest.mark.parametrize("name", ["optimizer/0000", "average/0000"])
def test_slots_among_other_variables_are_left_out_on_request(tmp_path, name):
    old, new = tmp_path / "old", tmp_path / "new"
    state = {"averages": ["head 0"] if name.startswith("average") else [0]}
    content = make_content(5, array=make_rows(3, WEIGHT), num_classes=7, **state)
    content.training = writer.variables_file({name: SLOT})
    writer.save(str(old), content)
    edit = Edit(LabelsMap(7, removed=[1]))
    with pytest.raises(ValueError, match="replicated head .* --edit_weights_only"):
        editing.edit(str(old), str(new), edit)
    editing.edit(str(old), str(new), edit, weights_only=True)
    np.testing.assert_array_equal(rows_of(new), np.delete(WEIGHT, 1, axis=0))


def test_rows_that_cancel_each_other_are_no_class_and_nothing_is_left(tmp_path):
    opposite = np.concatenate([WEIGHT[:6], -WEIGHT[:1]])
    old = save(tmp_path / "old", array=make_rows(3, opposite))
    # Found only when rows are written.
    with pytest.raises(ValueError, match="0, 6 cannot be merged: their rows point"):
        editing.edit(old, str(tmp_path / "new"), Edit(LabelsMap(7, merged=[[0, 6]])))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_probabilities_of_softmax_add_up_in_a_merged_bias(tmp_path):
    content = make_content(5, array=make_rows(3, WEIGHT), num_classes=7)
    content.arrays["bias"] = make_rows(3, WEIGHT[:, 0] / 10)
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    writer.save(old, content)
    editing.edit(old, new, Edit(LabelsMap(7, merged=[[0, 6]])))
    merged, biases = rows_of(new, "bias")[0], WEIGHT[[0, 6], 0] / 10
    np.testing.assert_allclose(np.exp(merged), np.exp(biases).sum(), rtol=1e-6)


def test_averages_are_edited_as_the_weights_are(tmp_path):
    content = make_content(5, array=make_rows(3, WEIGHT), num_classes=7)
    content.arrays["weight/average"] = make_rows(3, WEIGHT)
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    writer.save(old, content)
    editing.edit(old, new, Edit(LabelsMap(7, merged=[[0, 6]], added=2), added=ones))
    np.testing.assert_array_equal(rows_of(new, "weight/average"), rows_of(new))


def test_rows_are_read_and_handed_on_in_small_pieces(monkeypatch):
    monkeypatch.setattr(rows, "PIECE_BYTES", 4 * 100)
    old = np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32)
    spans = []

    def read(low, high):
        spans.append(high - low)
        return old[low:high]

    removed = np.random.default_rng(1).choice(1000, 900, replace=False)
    edited = rows.edited(
        Rows(old.shape, "float32", read),
        LabelsMap(1000, removed=removed, added=130),
        merge=lambda rows: np.mean(rows, axis=0),
        added=lambda low, high: np.full((high - low, 2), 3.0),
    )
    pieces = list(edited.pieces(20, 230))
    whole = np.concatenate([np.delete(old, removed, axis=0), np.full((130, 2), 3.0)])
    np.testing.assert_array_equal(np.concatenate(pieces), whole[20:230])
    assert max(spans) <= 50 and max(map(len, pieces)) <= 50
    assert len({piece.dtype for piece in pieces}) == 1


@pytest.mark.parametrize(
    ("labels", "edited"),
    [({}, False), ({"removed": [6]}, True), ({"merged": [[0, 6]]}, True)],
)
def test_the_state_knows_whether_labels_are_those_of_the_data(tmp_path, labels, edited):
    new, newer = str(tmp_path / "new"), str(tmp_path / "newer")
    old = source(tmp_path / "old", data={"images": 7, "contents": "before"})
    editing.edit(old, new, Edit(LabelsMap(7, **labels)))
    classes = manifest.read(new)["state"]["num_classes"]
    editing.edit(new, newer, Edit(LabelsMap(classes)))
    for path in (new, newer):
        found = manifest.read(path)["state"].get(editing.EDITED, False)
        assert found == (edited and "before")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"removed": [7]}, r"classes 0 to 6. Received: classes=\[7\]"),
        ({"removed": [-1]}, r"Received: classes=\[-1\]"),
        ({"removed": [2], "merged": [[2, 3]]}, r"Received: twice=\[2\]"),
        ({"merged": [[4]]}, r"at least two classes. Received: classes=\[4\]"),
        ({"removed": list(range(7))}, "The edit removes all classes"),
    ],
)
def test_labels_that_make_no_sense_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        LabelsMap(7, **labels)


def test_a_damaged_source_is_refused_and_nothing_is_left(tmp_path):
    old = source(tmp_path / "old")
    (rows,) = pathlib.Path(old, "rows").glob("weight-*.npy")
    flip(rows)
    with pytest.raises(DamagedCheckpointError, match="does not have the checksum"):
        editing.edit(old, str(tmp_path / "new"), Edit(LabelsMap(7, removed=[1])))
    assert [p.name for p in tmp_path.iterdir()] == ["old"]


def test_an_unknown_begin_of_a_slot_is_refused_or_left_out(tmp_path):
    old, new = source(tmp_path / "old"), str(tmp_path / "new")
    changes = Edit(LabelsMap(7, added=1), added=ones)
    with pytest.raises(ValueError, match="initial weight/velocity of new classes"):
        editing.edit(old, new, changes)
    editing.edit(old, new, changes, weights_only=True)
    content = manifest.read(new)
    assert content["kind"] == "weights" and list(content["arrays"]) == ["weight"]
    assert not pathlib.Path(new, "training.npz").exists()
    np.testing.assert_array_equal(rows_of(new)[:7], WEIGHT)


def test_a_head_is_needed(tmp_path):
    content = make_content(5)
    content.arrays.clear()
    writer.save(str(tmp_path / "old"), content)
    with pytest.raises(ValueError, match="has no class weights"):
        editing.edit(str(tmp_path / "old"), str(tmp_path / "new"), Edit(LabelsMap(7)))


def test_groups_of_labels_come_from_text_or_a_file(tmp_path):
    path = tmp_path / "groups.txt"
    path.write_text("3 17  # the same\n\n5+9 11\n")
    assert read_groups("") == []
    assert read_groups("3,17") == [[3], [17]]
    assert read_groups("3+17, 5+9+11") == [[3, 17], [5, 9, 11]]
    assert read_groups(str(path)) == [[3, 17], [5, 9, 11]]
    with pytest.raises(FileNotFoundError, match="labels such as 3,17"):
        read_groups("tree")
    path.write_text("3 x\n")
    with pytest.raises(ValueError, match="line 1: expected labels"):
        read_groups(str(path))
