"""Images of class folders that are the test split instead of training images."""

import pytest
import tensorflow as tf

from plsc_tf.data.load import open_source
from plsc_tf.data.request import DataRequest

SHARE = 0.25


def write(folder, number):
    picture = tf.io.encode_png(tf.zeros([4, 4, 3], tf.uint8)).numpy()
    for name in ("rose", "tulip"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(number):
            (folder / name / f"{index:04d}.png").write_bytes(picture)


def names(folder, split, share=SHARE):
    request = DataRequest(dataset_dir=str(folder), split=split, held_back=share)
    source = open_source("folder", request)
    assert source.num_classes == 2
    return {source.describe(i) for i in range(source.num_examples)}


def test_the_splits_are_the_images_once_and_stay_when_others_come(tmp_path):
    write(tmp_path, 200)
    train, test = names(tmp_path, "train"), names(tmp_path, "test")
    assert not train & test
    assert len(train | test) == 400
    assert len(test) == pytest.approx(SHARE * 400, abs=40)
    assert names(tmp_path, "train", 0.0) == train | test
    write(tmp_path, 250)
    assert test < names(tmp_path, "test")
    assert not train & names(tmp_path, "test")


def test_a_folder_with_a_test_split_is_refused(tmp_path):
    write(tmp_path / "test", 1)
    write(tmp_path / "train", 1)
    with pytest.raises(ValueError, match=r"there are some.*held_back=0.25"):
        names(tmp_path, "train")
    assert len(names(tmp_path, "test", 0.0)) == 2
