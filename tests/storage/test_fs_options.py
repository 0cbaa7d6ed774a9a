"""PLSC's set_hdfs_info: the folders, the user, and a password that is nowhere."""

import os

import pytest

from plsc_tf.options.settings import Settings
from plsc_tf.storage import fs_options

PASSWORD = "hidden-word"


@pytest.fixture(autouse=True)
def no_user(monkeypatch):
    # Set first, so that what a test sets is taken back as well.
    monkeypatch.setenv(fs_options.USER_VARIABLE, "")
    monkeypatch.delenv(fs_options.USER_VARIABLE)


def storage(**values):
    return Settings.from_values(**values).checkpoints


def test_folders_take_the_file_system_of_fs_name():
    given = storage(fs_name="hdfs://host:9000/", fs_dir_for_save="/user/me/out")
    path = fs_options.remote_dir(given, "fs_dir_for_save")
    assert path == "hdfs://host:9000/user/me/out"
    assert fs_options.remote_dir(given, "fs_checkpoint_dir") == ""
    given = storage(fs_name="hdfs://host:9000", fs_dir_for_save="gs://bucket/out")
    assert fs_options.remote_dir(given, "fs_dir_for_save") == "gs://bucket/out"


def test_a_folder_without_a_file_system_is_refused():
    with pytest.raises(ValueError, match="fs_dir_for_save needs a file system"):
        fs_options.upload_end(storage(fs_dir_for_save="/user/me/out"))
    with pytest.raises(ValueError, match="set fs_name=hdfs://.*fs_name='host'"):
        fs_options.upload_end(storage(fs_name="host", fs_dir_for_save="/user/me"))
    with pytest.raises(ValueError, match="fs_checkpoint_dir needs checkpoint"):
        storage(fs_name="hdfs://host:9000", fs_checkpoint_dir="/a")


def test_nothing_happens_unless_asked():
    assert fs_options.download_start(storage()) == 0
    assert fs_options.upload_end(storage()) == 0
    assert fs_options.USER_VARIABLE not in os.environ


def test_before_and_after_a_training(tmp_path):
    (tmp_path / "store/weights/7").mkdir(parents=True)
    (tmp_path / "store/weights/7/rows.npy").write_bytes(b"rows")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/results.json").write_text("{}")
    (tmp_path / "run/9.writing-3").mkdir()
    given = storage(
        fs_name=f"file://{tmp_path}",
        fs_checkpoint_dir="store/weights",
        fs_dir_for_save="store/saved",
        checkpoint_dir=str(tmp_path / "start"),
        model_save_dir=str(tmp_path / "run"),
    )
    assert fs_options.download_start(given) == 1
    assert (tmp_path / "start/7/rows.npy").read_bytes() == b"rows"
    # Found out before the training, not after it.
    assert (tmp_path / "store/saved").is_dir()
    assert fs_options.upload_end(given, skip=("*.writing-*",)) == 1
    assert os.listdir(tmp_path / "store/saved") == ["results.json"]


@pytest.mark.parametrize("given", ["someone", f"someone,{PASSWORD}"])
def test_the_user_comes_from_the_option(given):
    fs_options.set_user(storage(fs_ugi=given))
    assert os.environ["HADOOP_USER_NAME"] == "someone"


def test_a_user_that_is_set_stays(monkeypatch, caplog):
    monkeypatch.setenv("HADOOP_USER_NAME", "other")
    fs_options.set_user(storage(fs_ugi=f"someone,{PASSWORD}"))
    assert os.environ["HADOOP_USER_NAME"] == "other"
    assert "user is other" in caplog.text
    assert PASSWORD not in caplog.text


def test_errors_do_not_repeat_the_password():
    for given in (f",{PASSWORD}", "@/path/of/a/file"):
        with pytest.raises(ValueError, match="must hold user,password") as caught:
            fs_options.set_user(storage(fs_ugi=given))
        assert PASSWORD not in str(caught.value)
    with pytest.raises(ValueError, match=r"Received: fs_ugi='\*\*\*'") as caught:
        storage(fs_ugi=f"someone,{PASSWORD}\nmore")
    assert PASSWORD not in str(caught.value)


def test_the_options_do_not_keep_the_password():
    for separator in (",", ":", " "):
        given = storage(fs_ugi=f"some.one{separator}{PASSWORD}")
        assert given.fs_ugi == "some.one,***"
    assert storage(fs_ugi=given.fs_ugi) == given
    # Older checkpoints hold this.
    assert storage(fs_ugi="***") == storage()
