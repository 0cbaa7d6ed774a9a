"""Tests that options become the right preprocessing options and batches."""

import pytest
import tensorflow as tf

from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.preprocessing import own_augmentation
from plsc_tf.jobs.builders import data
from plsc_tf.jobs.builders.data import preprocessing_options
from plsc_tf.options.settings import Settings
from tests.data.conftest import write_folders
from tests.seeds.plsc_folder import make_train_data


def _options(dataset_name="mock", **flags):
    settings = Settings.from_values(dataset_name=dataset_name, **flags)
    return preprocessing_options(settings)


def test_without_flags_the_data_set_decides():
    assert _options() == {
        "image_size": (112, 112),
        "preprocessing": "face",
        "augmentation": Augmentation(flip=0.5),
    }
    assert _options("mnist")["augmentation"] is None


@pytest.mark.parametrize("name", ["face", "vgg", "inception", "cifarnet", "lenet"])
def test_a_name_brings_its_own_changes(name):
    options = _options("mnist", preprocessing_name=name)
    assert options["preprocessing"] == name
    assert options["augmentation"] == own_augmentation(name)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"random_flip": False}, "flip", 0.0),
        ({"random_rotate": 10}, "rotate", 10.0),
        ({"random_resized_crop": 0.08}, "crop_scale", (0.08, 1.0)),
        ({"random_hue": 0.1}, "hue", 0.1),
        ({"cutout": 0.3}, "cutout", 0.3),
        ({"random_erasing": 0.5}, "erasing", 0.5),
        ({"low_resolution": 0.2}, "low_resolution", 0.2),
        ({"crop_in_place": 0.2}, "crop_in_place", 0.2),
        ({"randaugment_layers": 2}, "randaugment_layers", 2),
        ({"color_probability": 0.2}, "color_probability", 0.2),
    ],
)
def test_a_flag_replaces_what_it_names_and_nothing_else(flags, field, value):
    changed = _options(preprocessing_name="inception", **flags)["augmentation"]
    own = own_augmentation("inception")
    assert getattr(changed, field) == value
    for name in own.__dataclass_fields__:
        assert name == field or getattr(changed, name) == getattr(own, name)


def test_what_a_preprocessing_does_can_be_switched_off():
    off = {"random_flip": False, "random_resized_crop": 1, "color_jitter": 0}
    changed = _options(preprocessing_name="inception", random_hue=0, **off)
    assert changed["augmentation"] is None


@pytest.mark.parametrize(
    ("split", "examples", "warned"),
    [("train", 10, True), ("train", 128, False), ("test", 10, False)],
)
def test_a_batch_that_the_data_do_not_fill_is_told(split, examples, warned, caplog):
    asked = {"dataset_name": "mock", "num_classes": 5, "image_shape": (3, 8, 8)}
    settings = Settings.from_values(num_sample_per_epoch=examples, **asked)
    data.load_batches(settings, 128, split=split)
    words = "128 images, but the data set 'mock' has 10, so each step adds padding."
    assert (words in caplog.text) == warned
    assert ("Lower batch_size" in caplog.text) == warned


def test_the_test_split_is_not_read_from_the_files_to_train_on():
    settings = Settings.from_values(train_files=("part-0.tfrecord",))
    assert data.data_request(settings).train_files == ("part-0.tfrecord",)
    assert data.data_request(settings, "test").train_files == ()


@pytest.mark.parametrize("given", [None, 12])
def test_records_have_the_classes_of_their_data_set(tmp_path, given):
    with tf.io.TFRecordWriter(str(tmp_path / "part-0")) as writer:
        writer.write(b"not read before training")
    flags = {} if given is None else {"num_classes": given}
    asked = {"dataset_dir": str(tmp_path), "train_files": ("part-0",), **flags}

    def load(name):
        return data.load_batches(Settings.from_values(dataset_name=name, **asked), 1)

    classes = given or 85_742
    assert load("ms1m").num_classes == load("image_list").num_classes == classes
    assert load("cifar10").num_classes == (given or 10)


# The number of classes of a training run: the requested number, or the data's.


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """A folder whose label.txt has the labels 0 to 3."""
    folder = tmp_path_factory.mktemp("listed")
    make_train_data(folder, [0, 1, 2, 3])
    return folder / "train_data"


@pytest.fixture
def folders(tmp_path):
    """Four class folders with one image each."""
    write_folders(tmp_path, "abcd")
    return tmp_path


def opened(folder, name="image_list", **options):
    """Returns (settings, batches) of a training run on a folder."""
    settings = Settings.from_values(
        dataset_name=name, dataset_dir=str(folder), image_shape=(3, 4, 4), **options
    )
    batches = data.load_batches(settings, 2)
    return data.with_classes(settings, batches), batches


@pytest.mark.parametrize("name", ["image_list", "folder"])
def test_a_number_that_was_not_given_is_the_datas(name, listed, folders, caplog):
    settings, _ = opened(listed if name == "image_list" else folders, name)
    assert settings.dataset.num_classes == 4
    assert f"num_classes is not set: using the 4 classes of '{name}'" in caplog.text


# 85742 is the default.
@pytest.mark.parametrize("asked", [9, 85742, 85743])
def test_more_classes_than_the_data_has_must_be_allowed(asked, listed, folders):
    words = f"num_classes={asked}, but .* has 4 classes.*Set --num_classes=4"
    for folder, name in ((listed, "image_list"), (folders, "folder")):
        with pytest.raises(ValueError, match=words):
            opened(folder, name, num_classes=asked)
    options = {"num_classes": asked, "allow_empty_classes": True}
    settings, batches = opened(folders, "folder", **options)
    assert batches.num_classes == settings.dataset.num_classes == asked


def test_a_test_split_must_have_every_class_of_the_network(folders):
    folders.rename(folders.with_name("test"))
    given = {"dataset_name": "folder", "dataset_dir": str(folders.parent)}
    settings = Settings.from_values(val_targets="test", num_classes=4, **given)
    assert data.load_test(settings).num_examples == 4
    (folders.with_name("test") / "b/0.png").unlink()
    with pytest.raises(ValueError, match="each class.*folders=3, num_classes=4"):
        data.load_test(settings)


def test_an_empty_class_folder_must_be_allowed(folders):
    (folders / "b2" / ".hidden").mkdir(parents=True)
    words = r"1 of 5 class folders of 'folder' have no images: b2\..*4 classes"
    for asked in ({}, {"num_classes": 4}, {"num_classes": 5}):
        with pytest.raises(ValueError, match=words):
            opened(folders, "folder", **asked)
    settings, batches = opened(folders, "folder", allow_empty_classes=True)
    assert settings.dataset.num_classes == 4
    assert batches.source.class_names == ("a", "b", "c", "d")


@pytest.mark.parametrize("asked", [{}, {"num_classes": 4}])
def test_labels_that_begin_at_1_propose_an_offset(asked, tmp_path):
    make_train_data(tmp_path, [1, 2, 3])
    folder = tmp_path / "train_data"
    with pytest.raises(ValueError, match=r"1\.\.\.3.*--labels_offset=1 .* 3 classes"):
        opened(folder, **asked)
    # num_classes equals the number of labels, so the largest label is out of range.
    with pytest.raises(ValueError, match="Label 3.*begin at 1: set labels_offset to 1"):
        opened(folder, num_classes=3)
    assert opened(folder, labels_offset=1)[0].dataset.num_classes == 3
    settings, _ = opened(folder, **asked, allow_empty_classes=True)
    assert settings.dataset.num_classes == 4


def test_gaps_between_labels_are_no_error(tmp_path):
    """A subset of a data set keeps its original labels, so labels may be missing."""
    make_train_data(tmp_path, [0, 0, 7])
    assert opened(tmp_path / "train_data")[0].dataset.num_classes == 8
