"""Calls that hang, fail or come back."""

import errno
import threading

import pytest

from plsc_tf.storage.deadline import Worker
from plsc_tf.storage.errors import StorageError


def test_a_call_that_hangs_is_given_up():
    let_go = threading.Event()
    with Worker() as worker:
        with pytest.raises(StorageError, match="list it: no answer") as caught:
            worker.run(let_go.wait, limit_s=0.05, doing="list it")
    assert caught.value.errno == errno.ETIMEDOUT
    let_go.set()
