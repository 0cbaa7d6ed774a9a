"""Finding data sets by name; `load` and `load_val`."""

import pickle
import sys

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.load import find, info, load, load_val, names, open_source
from plsc_tf.data.readers.layouts import DataRequest
from tests.conversion import drawn


def test_all_data_sets_are_found_and_say_what_they_are():
    assert set(names()) >= {
        *("mock", "mnist", "cifar10", "flowers", "ms1m", "casia"),
        *("folder", "image_list", "lfw112", "omniglot"),
    }
    for name in names():
        # Digits and letters are not mirrored.
        expected = "none" if name in ("mnist", "omniglot") else "face"
        assert info(name).augmentation == expected


def test_unknown_name_suggests_the_near_one():
    with pytest.raises(ValueError, match="no data set 'minst'. Did you mean 'mnist'"):
        find("minst")
    with pytest.raises(ValueError, match="PYTHONPATH"):
        find("my_own.module")
    with pytest.raises(ValueError, match="Define examples"):
        find("json.decoder")


def test_what_is_wrong_with_a_module_of_ones_own_is_told(tmp_path, monkeypatch):
    (tmp_path / "dotsets.py").write_text("import dots\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="No module named 'dots'"):
        find("dotsets")


def test_the_script_that_runs_may_be_the_data_set(monkeypatch):
    script = sys.modules["__main__"]
    monkeypatch.setattr(script, "__spec__", None)
    with pytest.raises(ValueError, match="'__main__' is not a data set"):
        find("__main__")
    monkeypatch.setattr(script, "parse_fn", lambda record: record, raising=False)
    assert find("__main__") is script


def test_a_module_of_ones_own(tmp_path, monkeypatch):
    package = tmp_path / "own_sets"
    package.mkdir()
    (package / "dots.py").write_text(
        "from plsc_tf.data.readers.python import from_generator\n"
        "import numpy as np\n"
        "def examples(request):\n"
        "    return from_generator(lambda: iter([(np.full((4, 4, 3), 9), 0)]))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    ((images, _),) = load("own_sets.dots", batch_size=2, image_size=(4, 4))
    assert images.shape == (1, 4, 4, 3)
    sys.modules.pop("own_sets.dots")


def test_fastnns_module_with_a_parse_fn(tmp_path, monkeypatch):
    """Records with keys of one's own, by a module that is in no package."""
    (tmp_path / "my_dots.py").write_text(
        "import tensorflow as tf\n"
        "def parse_fn(example):\n"
        "    key = tf.io.FixedLenFeature([], tf.int64)\n"
        "    keys = {'grey': key, 'kind': key}\n"
        "    found = tf.io.parse_single_example(example, keys)\n"
        "    grey = tf.cast(found['grey'], tf.uint8)\n"
        "    return tf.fill([4, 4, 3], grey), found['kind']\n"
    )
    folder = tmp_path / "dots[1]"  # not "dots1", which may be another user's
    folder.mkdir()
    with tf.io.TFRecordWriter(str(folder / "dots.tfrecord")) as writer:
        for number in range(3):
            keys = {"grey": 10 * number, "kind": 1 + number}
            writer.write(drawn.example(b"", 0, **keys))
    monkeypatch.syspath_prepend(str(tmp_path))
    request = DataRequest(str(folder), train_files="dots.*", labels_offset=1)
    source = open_source("my_dots", request)
    found = [(int(record.image[0, 0, 0]), record.label) for record in source.records()]
    assert found == [(0, 0), (10, 1), (20, 2)]
    # A folder of nothing but TFRecords needs no names.
    assert open_source("my_dots", DataRequest(str(folder))).num_examples == 3
    (folder / "dots.tfrecord").rename(folder / "dots-00000-of-00002.tfrecord")
    with pytest.raises(ValueError, match="All parts .*-of-2': 1"):
        open_source("my_dots", DataRequest(str(folder)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"reads only TFRecord.*train_files=\(\)"):
        open_source("my_dots", DataRequest(str(tmp_path / "empty")))
    sys.modules.pop("my_dots")


@pytest.mark.parametrize("given", [{}, {"training": True, "shuffle": True}])
def test_a_split_that_is_not_trained_on_comes_as_it_is(given):
    """Unless the caller says otherwise: nothing shuffled, nothing mirrored."""
    options = load("mock", batch_size=1, split="test", **given).options
    assert options.training == options.shuffle == bool(given)
    fields = {"batch_size": 8, "num_classes": 4, "image_size": (12, 12)}
    batches = load("mock", num_examples=8, split="test", **fields, **given)
    ((images, labels),) = batches.epoch(3)
    framed = [record.image for record in batches.source.records()]
    as_it_is = np.array_equal(images, framed) and list(labels) == 2 * list(range(4))
    assert as_it_is != bool(given)
    assert load("mock", batch_size=1, training=False).options.shuffle


def test_train_files_are_no_other_split(tmp_path):
    request = DataRequest(str(tmp_path), split="test", train_files="a,b")
    with pytest.raises(ValueError, match="split=test, train_files=.*False"):
        open_source("cifar10", request)


def test_load_passes_fields_on(list_folder):
    fields = {"image_size": (6, 6), "num_classes": 9, "shuffle": False, "seed": 3}
    batches = load("image_list", str(list_folder), batch_size=4, **fields)
    assert batches.num_classes == 9 and batches.image_size == (6, 6)
    assert batches.options.augmentation == Augmentation(flip=0.5)
    assert batches.options.seed == 3
    np.testing.assert_array_equal(next(iter(batches))[1], [0, 1, 2, 3])
    with pytest.raises(ValueError, match="no argument 'cache'"):
        load("mock", batch_size=4, cache=True)


def test_load_val_looks_in_the_data_folder(tmp_path, picture):
    content = pickle.dumps(([picture(0, 0), picture(1, 1)], [False]))
    (tmp_path / "lfw.bin").write_bytes(content)
    request = DataRequest(dataset_dir=str(tmp_path))
    for target in ("lfw", "lfw.bin", str(tmp_path / "lfw.bin")):
        assert load_val("ms1m", request, target).name == "lfw"
    # A file in a stranger's data set must not take the place of the one that is named.
    decoy = tmp_path / "b" / str(tmp_path / "lfw.bin")[1:]
    decoy.parent.mkdir(parents=True)
    decoy.write_bytes(b"damaged")
    other = DataRequest(dataset_dir=str(tmp_path / "b"))
    assert load_val("ms1m", other, str(tmp_path / "lfw.bin")).name == "lfw"
    with pytest.raises(FileNotFoundError, match="agedb_30.bin.*--with_test=false"):
        load_val("ms1m", request, "agedb_30")


def test_request_refuses_nonsense():
    for fields in ({"num_classes": 0}, {"image_size": (1,)}, {"seed": -1}):
        with pytest.raises(ValueError, match="Received"):
            DataRequest(**fields)
    assert DataRequest(train_files="a,b").train_files == ("a", "b")
