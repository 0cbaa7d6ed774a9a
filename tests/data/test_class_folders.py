"""Class folders: numbering, nesting, thresholds and errors."""

import os

import numpy as np
import pytest

from plsc_tf.data.readers.class_folders import class_folders


@pytest.fixture
def folders(tmp_path, picture):
    for name, count in {"b/two": 2, "a": 3, "b/one": 1}.items():
        (tmp_path / name).mkdir(parents=True)
        for number in range(count):
            (tmp_path / name / f"{number}.PNG").write_bytes(picture(0, number))
    return tmp_path


def test_classes_are_the_sorted_folders_that_hold_images(folders):
    (folders / "a/notes.txt").write_text("no image")
    (folders / ".hidden").mkdir()
    (folders / ".hidden/x.png").write_bytes(b"x")
    source = class_folders(str(folders) + "/")
    assert source.class_names == ("a", "b/one", "b/two")
    np.testing.assert_array_equal(source.labels, [0, 0, 0, 1, 2, 2])
    assert source.describe(3) == str(folders / "b/one/0.PNG")


def test_small_classes_are_left_out_and_the_rest_renumbered(folders):
    source = class_folders(str(folders), min_images_per_class=2)
    assert source.class_names == ("a", "b/two")
    np.testing.assert_array_equal(source.labels, [0, 0, 0, 1, 1])
    with pytest.raises(FileNotFoundError, match="the largest holds 3"):
        class_folders(str(folders), min_images_per_class=4)


def test_keep_chooses_classes(folders):
    source = class_folders(str(folders), keep=lambda name: name.startswith("b/"))
    assert source.class_names == ("b/one", "b/two")


def test_too_few_classes_asked_for(folders):
    with pytest.raises(ValueError, match="which is 3. Received: num_classes=2"):
        class_folders(str(folders), num_classes=2)
    assert class_folders(str(folders), num_classes=7).num_classes == 7


def test_images_without_class_folders(folders):
    with pytest.raises(ValueError, match="holds images, but no class folders"):
        class_folders(str(folders / "a"))


def test_empty_folder_hints_at_the_list(tmp_path):
    (tmp_path / "label.txt").write_text("")
    with pytest.raises(FileNotFoundError, match="Did you mean --dataset_name=image_l"):
        class_folders(str(tmp_path))


def test_a_link_that_leads_back_is_refused(folders):
    (folders / "a/again").symlink_to(folders)
    with pytest.raises(ValueError, match="again' is the same folder as .* by a link"):
        class_folders(str(folders))


def test_links_to_other_folders_are_followed(folders, tmp_path_factory, picture):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "0.png").write_bytes(picture(0, 0))
    (folders / "c").symlink_to(elsewhere)
    assert class_folders(str(folders)).class_names == ("a", "b/one", "b/two", "c")


def test_names_need_not_be_utf_8(folders):
    with open(os.fsencode(folders) + b"/a/\xff.png", "wb") as file:
        file.write(b"content")
    source = class_folders(str(folders))
    items = list(source.epoch(seed=0, epoch=0, shuffle=False))
    assert items[3]["image"].numpy() == b"content"
