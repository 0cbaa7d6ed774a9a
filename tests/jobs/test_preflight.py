"""Tests that workers which differ or are unreachable are found before training."""

import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest
import tensorflow as tf

import plsc_tf as plsc
from plsc_tf import private_apis
from plsc_tf.parallel import preflight
from plsc_tf.parallel.addresses import free_ports

ROOT = pathlib.Path(__file__).parents[2]
WORKER = pathlib.Path(__file__).with_name("preflight_worker.py")
MOST_S = 120

FACTS = {
    "versions": {"plsc_tf": "0.1.0", "tensorflow": "2.17.1"},
    "flags": {"learning_rate": 0.1, "model_name": "resnet18"},
    "data": "ab12",
}


def differing(**flags):
    return {**FACTS, "flags": {**FACTS["flags"], **flags}}


def finding(facts):
    with pytest.raises(ValueError) as caught:
        preflight.compare(facts)
    return str(caught.value)


def test_every_difference_is_shown_with_its_workers():
    text = finding([FACTS, {**differing(learning_rate=0.2), "data": "cd34"}, FACTS])
    assert text.splitlines()[1:] == [
        "  data: 'ab12' on workers 0, 2; 'cd34' on worker 1",
        "  flags.learning_rate: 0.1 on workers 0, 2; 0.2 on worker 1",
    ]
    assert "nothing was trained" in text
    text = finding([differing(seed=1), FACTS])
    assert "  flags.seed: 1 on worker 0; not set on worker 1" in text
    preflight.compare([FACTS, dict(FACTS), json.loads(json.dumps(FACTS))])


def test_long_values_are_shown_where_they_differ():
    values = ("part-" * 100 + "one", "part-" * 100 + "two")
    line = finding([differing(files=value) for value in values]).splitlines()[1]
    assert "one' on worker 0" in line and "two' on worker 1" in line and len(line) < 200


def test_the_collectives_of_one_machine_work():
    preflight.try_collectives(plsc.strategy(num_replicas=2), None, MOST_S)


def test_a_failing_collective_is_an_error(monkeypatch):
    monkeypatch.setattr(preflight, "all_sum", lambda value: value)
    with pytest.raises(RuntimeError, match=r"all_sum float32: expected 2, .*\[1.0\]"):
        preflight.try_collectives(plsc.strategy(num_replicas=2), None, MOST_S)


def test_nccl_is_not_asked_for_bfloat16(monkeypatch):
    monkeypatch.setattr(private_apis, "uses_nccl", lambda strategy: True)
    strategy = plsc.strategy(num_replicas=2)
    with pytest.raises(ValueError, match="cannot sum bfloat16. Use gradient_dtype="):
        preflight.try_collectives(strategy, None, MOST_S, "bfloat16")
    # What else training exchanges is of types that NCCL takes.
    asked = []
    monkeypatch.setattr(preflight, "all_sum", lambda v: asked.append(v.dtype) or v * 2)
    preflight.try_collectives(strategy, None, MOST_S, "float16")
    assert set(asked) == {tf.float32, tf.float16}


class TwoWorkers:
    """A group whose other worker has a broken card."""

    names = ("Worker 0 (a:1)", "Worker 1 (b:1)")

    def report_activity(self, activity):
        """Does nothing."""

    def gather(self, name, problem, timeout_s):
        """Returns this worker's problem and that of the other."""
        return [problem, "OSError: a broken card"]


class Hanging:
    """A strategy whose collectives hang."""

    num_replicas_in_sync = 2

    def run(self, function):
        """Waits until the test ends."""
        threading.Event().wait(5)


def test_workers_with_problems_are_named():
    with pytest.raises(RuntimeError) as caught:
        preflight.try_collectives(Hanging(), TwoWorkers(), 0.2)
    assert str(caught.value).splitlines()[1:] == [
        "  Worker 0 (a:1): still waiting after 0.2 s",
        "  Worker 1 (b:1): OSError: a broken card",
    ]


@pytest.mark.slow
def test_two_processes_name_workers_with_problems():
    addresses = [f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 2)]
    workers = []
    try:
        for index in range(2):
            worker = subprocess.Popen(
                [sys.executable, WORKER, ",".join(addresses), str(index)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            workers.append(worker)
        for worker in workers:
            said, log = worker.communicate(timeout=MOST_S)
            lines = [json.loads(line) for line in said.splitlines()]
            assert worker.returncode == 0 and len(lines) == 3, log
            assert lines[0] == "they work"
            assert "RuntimeError: TensorFlow's collectives failed" in lines[1]
            assert lines[1].endswith(
                f"\n  Worker 0 ({addresses[0]}): still waiting after 2 s"
                f"\n  Worker 1 ({addresses[1]}): OSError: a broken card"
            )
            if worker is workers[0]:
                assert lines[2].startswith(
                    f"TimeoutError: Worker 1 ({addresses[1]}) did not send a value"
                )
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
