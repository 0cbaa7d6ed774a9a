"""What is tried again, what is not, what ends in time, and TensorFlow's errors."""

import errno
import threading

import pytest
import tensorflow as tf

from plsc_tf.storage import remote
from plsc_tf.storage.deadline import Worker
from plsc_tf.storage.errors import StorageError

QUICK = remote.Retry(tries=3, first_wait_s=0.001)


def failing(kind, text, times):
    """A call that fails a number of times, and then returns how often it was made."""
    calls = []

    def call():
        calls.append(None)
        if len(calls) <= times:
            raise kind(None, None, f"gs://b/a; {text}")
        return len(calls)

    return call, calls


def attempt(call, retry=QUICK):
    return remote._attempt("read", "gs://b/a", call, retry)


def test_passing_faults_are_tried_again():
    call, _ = failing(tf.errors.UnavailableError, "busy", times=2)
    assert attempt(call) == 3


def test_lasting_faults_end():
    call, calls = failing(tf.errors.UnknownError, "Unknown error 255", times=9)
    with pytest.raises(StorageError, match="Could not read gs://b/a: Unknown error"):
        attempt(call)
    assert len(calls) == 3


@pytest.mark.parametrize("problem", ["", "The NameNode is down."])
def test_a_fault_of_hdfs_is_diagnosed_in_a_new_process(monkeypatch, problem):
    call, _ = failing(tf.errors.UnknownError, "Unknown error 255", times=9)
    monkeypatch.setattr(remote.hdfs, "why_unreachable", lambda root: problem)
    with pytest.raises(StorageError, match=problem or "new process .* restart this"):
        remote._attempt("read", "hdfs://b/a", call, QUICK)


@pytest.mark.parametrize(
    ("kind", "text", "expected", "number"),
    [
        ("PermissionDenied", "Permission denied", OSError, errno.EACCES),
        ("ResourceExhausted", "No space left on device", OSError, errno.ENOSPC),
        ("ResourceExhausted", "Disk quota exceeded", OSError, errno.EDQUOT),
        ("NotFound", "gone", FileNotFoundError, errno.ENOENT),
        ("AlreadyExists", "there", FileExistsError, errno.EEXIST),
        ("Unimplemented", "no", StorageError, None),
    ],
)
def test_faults_that_stay_are_raised_at_once(kind, text, expected, number):
    call, calls = failing(getattr(tf.errors, f"{kind}Error"), text, times=1)
    with pytest.raises(expected) as caught:
        attempt(call)
    assert caught.value.errno == number
    assert len(calls) == 1


def test_a_call_that_hangs_is_given_up():
    let_go = threading.Event()
    with Worker() as worker:
        with pytest.raises(StorageError, match="list it: no answer") as caught:
            worker.run(let_go.wait, limit_s=0.05, doing="list it")
    assert caught.value.errno == errno.ETIMEDOUT
    let_go.set()
