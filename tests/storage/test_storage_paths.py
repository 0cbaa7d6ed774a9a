"""Addresses: how they are cut, and which are refused."""

import pytest

from plsc_tf.storage import files, paths


def test_parts_of_addresses():
    assert paths.is_local("file:///a/b")
    assert files.parent("hdfs://host:9000/a/b/") == "hdfs://host:9000/a"
    assert files.parent("hdfs://host:9000/a") == "hdfs://host:9000/"
    assert files.name("hdfs://host:9000/a/b/") == "b"
    assert files.name("hdfs://host:9000") == ""
    assert files.join("hdfs://host:9000/", "a", "b") == "hdfs://host:9000/a/b"
    assert files.join("run", "a", "b") == "run/a/b"
    assert files.parent("/run/a/") == "/run"
    assert files.name("/run/a/") == "a"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("hdfs://host:9000", "hdfs://host:9000/"),
        ("hdfs://host:9000//a//b/", "hdfs://host:9000/a/b"),
        ("hdfs:///a/./b/../c", "hdfs:///a/c"),
        ("gs://bucket/a/", "gs://bucket/a"),
        ("file:///tmp/a", "/tmp/a"),
        ("relative/a", "relative/a"),
    ],
)
def test_canonical(given, expected):
    assert paths.canonical(given) == expected


def test_names_that_hdfs_cannot_hold():
    with pytest.raises(ValueError, match="not allow ':' in names"):
        paths.canonical("hdfs://host:9000/run-12:30")
    assert paths.canonical("/tmp/run-12:30") == "/tmp/run-12:30"


def test_the_bare_root_is_no_place_for_a_run():
    with pytest.raises(ValueError, match="below the root of the store"):
        files.make_dirs("hdfs://host:9000")


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(ValueError, match="must not contain a password") as caught:
        files.exists("hdfs://me:hidden-word@host:9000/a")
    assert "hidden-word" not in str(caught.value)
