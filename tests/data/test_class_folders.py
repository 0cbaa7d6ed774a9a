"""Class folders: numbering, nesting, thresholds and errors."""

import numpy as np
import pytest

from plsc_tf.data.readers.image_files import class_folders
from tests.data.conftest import opened, write_folders


@pytest.fixture
def folders(tmp_path):
    for count, name in enumerate(("b/one", "b/two", "a"), 1):
        write_folders(tmp_path, [name], count)
    (tmp_path / "b/one/0.png").rename(tmp_path / "b/one/0.PNG")
    return tmp_path


def test_classes_are_the_sorted_folders_that_hold_images(folders):
    (folders / "a/notes.txt").write_text("no image")
    (folders / ".hidden").mkdir()
    (folders / ".hidden/x.png").write_bytes(b"x")
    source = class_folders(str(folders) + "/")
    assert source.class_names == ("a", "b/one", "b/two")
    np.testing.assert_array_equal(source.labels, [0, 0, 0, 1, 2, 2])
    assert source.describe(3) == str(folders / "b/one/0.PNG")


def test_too_few_classes_asked_for(folders):
    with pytest.raises(ValueError, match="the 3 class folders.*: num_classes=2"):
        class_folders(str(folders), num_classes=2)
    assert class_folders(str(folders), num_classes=7).num_classes == 7


def test_images_without_class_folders(folders):
    with pytest.raises(ValueError, match="has images, but no class folders"):
        class_folders(str(folders / "a"))


def test_empty_folder_hints_at_the_list(tmp_path):
    (tmp_path / "label.txt").write_text("")
    with pytest.raises(FileNotFoundError, match="Did you mean --dataset_name=image_l"):
        class_folders(str(tmp_path))


def test_links_to_other_folders_are_followed(folders, tmp_path_factory, picture):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "0.png").write_bytes(picture(0, 0))
    (folders / "c").symlink_to(elsewhere)
    assert class_folders(str(folders)).class_names == ("a", "b/one", "b/two", "c")


SHARE, FLOWERS = 0.25, ("rose", "tulip")


def names(folder, split, share=SHARE):
    source = opened("folder", folder, split=split, held_back=share)
    assert source.num_classes == 2
    return {source.describe(i) for i in range(source.num_examples)}


def test_the_splits_are_the_images_once_and_stay_when_others_come(tmp_path):
    write_folders(tmp_path, FLOWERS, 200)
    train, test = names(tmp_path, "train"), names(tmp_path, "test")
    assert not train & test
    assert len(train | test) == 400
    assert len(test) == pytest.approx(SHARE * 400, abs=40)
    assert names(tmp_path, "train", 0.0) == train | test
    write_folders(tmp_path, FLOWERS, 250)
    assert test < names(tmp_path, "test")
    assert not train & names(tmp_path, "test")


def test_a_folder_with_a_test_split_is_refused(tmp_path):
    write_folders(tmp_path / "test", FLOWERS)
    write_folders(tmp_path / "train", FLOWERS)
    with pytest.raises(ValueError, match=r"without test images.*held_back=0.25"):
        names(tmp_path, "train")
    assert len(names(tmp_path, "test", 0.0)) == 2


def test_a_test_split_without_one_of_the_nested_classes_is_refused(tmp_path):
    write_folders(tmp_path / "train/plants", FLOWERS, 2)
    write_folders(tmp_path / "test/plants", FLOWERS)
    assert len(names(tmp_path, "test", 0.0)) == 2
    (tmp_path / "test/plants/rose/0.png").unlink()
    with pytest.raises(ValueError, match="same class folders.*such as .'plants/rose'"):
        names(tmp_path, "test", 0.0)
