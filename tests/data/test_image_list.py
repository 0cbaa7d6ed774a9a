"""label.txt: what is read, and one clear error for each thing that goes wrong."""

import numpy as np
import pytest

from plsc_tf.data.readers.image_files import image_list


def test_reads_paths_and_labels_of_all_lines(list_folder, picture):
    source = image_list(str(list_folder))
    assert (source.num_examples, source.num_classes) == (20, 5)
    np.testing.assert_array_equal(source.labels, np.arange(20) % 5)
    items = list(source.epoch(seed=0, epoch=0, shuffle=False))
    assert items[7]["image"].numpy() == picture(2, 7)
    assert [int(item["index"]) for item in items] == list(range(20))


def test_any_white_space_blank_lines_blanks_in_names_and_bom_are_read(list_folder):
    (list_folder / "images/a  b.png").write_bytes(b"x")
    text = "\ufeffimages/a  b.png\t3\r\n\n  images/00.png \t  1  \nimages/01.png\x0b2"
    (list_folder / "label.txt").write_text(text, encoding="utf-8", newline="")
    source = image_list(str(list_folder))
    np.testing.assert_array_equal(source.labels, [3, 1, 2])
    assert source.describe(0).endswith(f"line 1 ({list_folder}/images/a  b.png)")
    assert "line 3" in source.describe(1)


def test_empty_list_says_what_a_line_is_and_missing_one_what_was_found(list_folder):
    (list_folder / "label.txt").write_text("\n\n")
    with pytest.raises(ValueError, match="label.txt is empty. Expected one line per"):
        image_list(str(list_folder))
    (list_folder / "label.txt").unlink()
    with pytest.raises(FileNotFoundError, match="has no label.txt. Found: images/"):
        image_list(str(list_folder))


@pytest.mark.parametrize(
    "line",
    [
        *("images/03.png", "images/03.png one", "3", "a.png 9" + "9" * 30),
        *(f"images/00.png {label}" for label in ("1_0", "1.0", "0x1", "--1", "\u0661")),
        # The system would read images/00.png.
        "images/00.png\0.jpg 0",
    ],
)
def test_bad_line_is_named(list_folder, line):
    (list_folder / "label.txt").write_text(f"images/00.png 0\n{line}\n")
    with pytest.raises(ValueError, match="label.txt, line 2: expected a path and"):
        image_list(str(list_folder))


@pytest.mark.parametrize(("label", "hint"), [(4, "at least 5"), (-1, "labels_offset")])
def test_label_out_of_range_names_the_line(list_folder, label, hint):
    (list_folder / "label.txt").write_text(f"images/00.png 0\nimages/01.png {label}\n")
    with pytest.raises(ValueError, match=rf"Label {label} at .*line 2 .*{hint}"):
        image_list(str(list_folder), num_classes=4)


def test_wrong_root_is_noticed_before_training(list_folder):
    text = (list_folder / "label.txt").read_text()
    (list_folder / "label.txt").write_text(text.replace("images/", "pictures/"))
    with pytest.raises(FileNotFoundError, match="line 1 .*is dataset_dir correct"):
        image_list(str(list_folder))


def test_names_need_not_be_utf_8(list_folder):
    import os

    with open(os.fsencode(list_folder) + b"/images/\xff.png", "wb") as file:
        file.write(b"content")
    (list_folder / "label.txt").write_bytes(b"images/\xff.png 0\n")
    (item,) = image_list(str(list_folder)).epoch(seed=0, epoch=0, shuffle=False)
    assert item["image"].numpy() == b"content"
