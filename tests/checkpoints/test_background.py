"""One save at a time, on a thread of its own."""

import threading

import pytest

from plsc_tf.checkpoints.writer import BackgroundSaver
from tests import programs


def test_the_second_waits_for_the_first_and_the_caller_does_not():
    saver, may_end, order = BackgroundSaver(), threading.Event(), []
    assert not saver.busy
    saver.submit(lambda: may_end.wait() and order.append("first"))
    assert saver.busy
    saver.check()  # does not wait: the function could not end before the next lines
    second = threading.Thread(target=saver.submit, args=(lambda: order.append("2nd"),))
    second.start()
    second.join(0.1)
    assert second.is_alive() and order == []
    may_end.set()
    second.join()
    saver.wait()
    assert not saver.busy and order == ["first", "2nd"]


def fail():
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("meet", ["check", "wait", "submit"])
def test_an_error_is_raised_once_in_the_caller(meet):
    saver = BackgroundSaver()
    saver.submit(fail)
    while saver.busy:
        pass
    arguments = [lambda: None] if meet == "submit" else []
    with pytest.raises(OSError, match="No space left"):
        getattr(saver, meet)(*arguments)
    saver.check()
    saver.submit(lambda: None)
    saver.wait()


def test_the_end_of_the_process_waits(tmp_path):
    code = (
        "import sys, time, pathlib\n"
        "from plsc_tf.checkpoints.writer import BackgroundSaver\n"
        "def save():\n"
        "    time.sleep(0.3)\n"
        "    pathlib.Path(sys.argv[1]).write_text('all')\n"
        "BackgroundSaver().submit(save)\n"
        "sys.exit(143)\n"
    )
    programs.run("-c", code, tmp_path / "saved", status=143)
    assert (tmp_path / "saved").read_text() == "all"
