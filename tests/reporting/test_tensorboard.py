"""Logs for TensorBoard: what a resumed run takes back, and a folder that is lost."""

import logging
import shutil
import threading
import time

from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator,
)

from plsc_tf.reporting.recorder import Recorder
from plsc_tf.reporting.tensorboard import TensorBoard


def steps_of(folder):
    accumulator = EventAccumulator(str(folder), {"tensors": 0}).Reload()
    return [event.step for event in accumulator.Tensors("loss")]


def test_a_run_that_is_begun_or_resumed_again_takes_later_steps_back(tmp_path):
    for begin, last in ((0, 4), (0, 8), (5, 9)):
        log = TensorBoard(str(tmp_path))
        log.begin(begin)
        for step in range(begin + 1, last + 1):
            log.scalars(step, {"loss": float(step)})
        log.close()
        assert steps_of(tmp_path) == list(range(1, last + 1))


def test_a_lost_folder_costs_the_logs_only(tmp_path, caplog):
    folder = tmp_path / "tensorboard"
    recorder = Recorder([TensorBoard(str(folder))])
    shutil.rmtree(folder)
    folder.write_text("no folder any more")
    with caplog.at_level(logging.WARNING, logger="absl"):
        recorder.begin(3)
        recorder.scalars(4, {"loss": 1.0})
        recorder.close()
    assert caplog.text.count(f"Could not write {folder}; the training is not") == 1


def test_a_closed_log_leaves_no_thread_behind(tmp_path):
    before = set(threading.enumerate())
    log = TensorBoard(str(tmp_path))
    for step in (1, 2):  # it can be gone on with after a close
        log.begin(step - 1)
        log.scalars(step, {"loss": 1.0})
        log.close()
    log.close()
    limit = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < limit:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before
    assert steps_of(tmp_path) == [1, 2]
