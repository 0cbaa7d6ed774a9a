"""Files and checkpoints on a local S3 server, through pyarrow.

Without moto the tests are skipped; PLSC_TF_REQUIRE_S3=1 makes that a failure.
"""

import contextlib
import os
import threading
import urllib.request

import hdfs_driver
import pytest
from hdfs_driver import RemoteCallError
from hdfs_trainings import OPTIONS

from plsc_tf.parallel.addresses import free_addresses
from tests import required
from tests.storage.test_storage_files import EVERYWHERE


def start_server():
    """Returns (server, its address); all servers of this process share the buckets."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    return server, "http://{}:{}".format(*server.get_host_and_port())


@pytest.fixture(scope="module")
def environment(without_tensorflow_io):
    """The environment of a process that reaches the server, which has a bucket."""
    try:
        server, address = start_server()
    except ImportError as error:
        required.skip("S3", f"S3: {error}: pip install 'moto[server]'")
    make_bucket = urllib.request.Request(f"{address}/bucket", method="PUT")
    urllib.request.urlopen(make_bucket).close()
    yield {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "key",
        "AWS_ENDPOINT_URL": address,
        "PYTHONPATH": without_tensorflow_io,
    }
    server.stop()


@pytest.fixture
def start(environment, tmp_path):
    """Function that starts an `hdfs_driver.Driver`, with changes of environment."""
    with contextlib.ExitStack() as stack:

        def start(**changes):
            log = tmp_path / f"log-{len(list(tmp_path.iterdir()))}.txt"
            driver = hdfs_driver.Driver({**environment, **changes}, log)
            stack.callback(driver.stop)
            return driver

        yield start


def test_operations_do_what_they_do_on_a_disk(start):
    driver = start()
    for test in (*EVERYWHERE, "an_iterable_that_fails_leaves_no_part"):
        driver.call("hdfs_checks:on_new_folder", test, f"s3://bucket/{test}")


def test_a_server_that_is_down_is_an_error_and_not_absence(start):
    (address,) = free_addresses(1)
    driver = start(AWS_ENDPOINT_URL=f"http://{address}")
    for call in ("exists", "s3://bucket/run", 1, 0.1, 60), ("list_dir", "s3://bucket"):
        with pytest.raises(RemoteCallError, match="StorageError: Could not .*connect"):
            driver.call(f"hdfs_checks:{call[0]}", *call[1:])


def test_a_missing_image_is_skipped_and_one_of_a_server_that_is_down_is_not(start):
    server, address = start_server()
    driver, folder = start(AWS_ENDPOINT_URL=address), "s3://bucket/images"
    driver.call("hdfs_checks:write_images", folder, 20, 6)
    labels, skipped = driver.call("hdfs_checks:read_images", folder)
    assert (labels[:8], skipped) == ([0, 1, 2, 3, 4, 5, 7, 7], 1)
    server.stop()
    with pytest.raises(RemoteCallError, match="cannot be read .*connect"):
        driver.call("hdfs_checks:read_images", folder)


def test_a_run_whose_writer_is_killed_resumes(start, tmp_path):
    """A checkpoint counts once its manifest, which is written last, is there."""
    folder = "s3://bucket/run"
    options = {**OPTIONS, "model_save_dir": folder, "save_checkpoints_steps": 2}
    options["export_at_end"] = True
    marks = [str(tmp_path / name) for name in ("begun", "never", "over", "mended")]
    first, second = start(), start()
    first.begin("hdfs_trainings:train_past_a_broken_save", options, 4, *marks)
    first.wait_for(tmp_path / "begun")
    first.stop()  # kill -9, in the middle of a file of step_00000004
    before = second.call("hdfs_trainings:checkpoints", folder)
    assert before == [["step_00000002"], "step_00000002"]
    said = second.call("hdfs_trainings:train", options, limit_s=200)
    assert said["error"] is None
    assert list(said["losses"]) == [str(step) for step in range(3, 11)]
    assert second.call("hdfs_trainings:checkpoints", folder)[1] == "0"
    said = second.call("hdfs_trainings:embedding", f"{folder}/export")
    assert (said["images"], said["embedding size"]) == ("1", 8)


def test_a_version_whose_exporter_is_killed_is_not_served(start, monkeypatch):
    """The last file makes it a version; the server kills who asks for that one."""
    models = pytest.importorskip("moto.s3.models")
    copy, folder = models.S3Backend.copy_object, "s3://bucket/face"
    first, second, killed = start(), start(), threading.Event()

    def kill_at_last(backend, source, bucket, name, *more, **options):
        if name == "face/1/saved_model.pb":
            first.stop()
            killed.set()
        else:
            copy(backend, source, bucket, name, *more, **options)

    monkeypatch.setattr(models.S3Backend, "copy_object", kill_at_last)
    first.begin("hdfs_trainings:export_network", folder)
    assert killed.wait(120)
    names = second.call("hdfs_checks:list_dir", f"{folder}/1")
    assert {"assets.extra", "fingerprint.pb", "variables"} < set(names)
    assert second.call("hdfs_trainings:export_network", folder) == [2]


# Whoever owns the bucket would write any file of who downloads it, such as a start-up
# file of the shell.
def test_a_download_stays_in_its_folder(start, environment, tmp_path):
    for key in ("a/b/run/ok.txt", "a/b/run/../evil.txt", "a/b/evil.txt"):
        address = f"{environment['AWS_ENDPOINT_URL']}/bucket/{key}"
        put = urllib.request.Request(address, b"evil", method="PUT")
        urllib.request.urlopen(put).close()
    driver, source, target = start(), "s3://bucket/a/b/run", tmp_path / "home/run"
    with pytest.raises(RemoteCallError, match="run holds a folder '..'. Remove it"):
        driver.call("hdfs_checks:copy", "download", source, str(target))
    assert not (tmp_path / "home/evil.txt").exists()
