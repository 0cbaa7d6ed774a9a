"""Tests that workers which differ or are unreachable are found before training."""

import json
import threading
import types

import pytest
import tensorflow as tf

import plsc_tf as plsc
from plsc_tf import private_apis
from plsc_tf.parallel import preflight
from plsc_tf.parallel.group import Group, SingleWorker
from tests.parallel.test_group import make_clusters, on_each

MOST_S = 120

FACTS = {"versions.tensorflow": "2.17.1", "flags.learning_rate": 0.1, "data": "ab12"}


def differing(**flags):
    return FACTS | {f"flags.{name}": value for name, value in flags.items()}


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


def test_long_values_are_shown():
    values = ("part-" * 100 + "one", "part-" * 100 + "two")
    line = finding([differing(files=value) for value in values]).splitlines()[1]
    assert "one' on worker 0" in line and "two' on worker 1" in line


def test_the_collectives_of_one_machine_work():
    preflight.try_collectives(plsc.strategy(num_replicas=2), SingleWorker(), MOST_S)


def test_a_failing_collective_is_an_error(monkeypatch):
    monkeypatch.setattr(preflight, "all_sum", lambda value: value)
    with pytest.raises(RuntimeError, match=r"all_sum float32: expected 2, .*\[1.0\]"):
        preflight.try_collectives(plsc.strategy(num_replicas=2), SingleWorker(), MOST_S)


def test_nccl_is_not_asked_for_bfloat16(monkeypatch):
    monkeypatch.setattr(private_apis, "uses_nccl", lambda strategy: True)
    strategy = plsc.strategy(num_replicas=2)
    with pytest.raises(ValueError, match="cannot sum bfloat16. Use gradient_dtype="):
        preflight.try_collectives(strategy, SingleWorker(), MOST_S, "bfloat16")
    # What else training exchanges is of types that NCCL takes.
    asked = []
    monkeypatch.setattr(preflight, "all_sum", lambda v: asked.append(v.dtype) or v * 2)
    preflight.try_collectives(strategy, SingleWorker(), MOST_S, "float16")
    assert set(asked) == {tf.float32, tf.float16}


def hang(function):
    """Stands for a strategy's `run` whose collectives hang until the test ends."""
    threading.Event().wait(5)


def fail(function):
    """Stands for a `run` that fails at once, on this worker only."""
    raise OSError("a broken card")


def test_workers_with_problems_are_named():
    both = threading.Barrier(2)

    def attempt(cluster):
        group = Group(cluster, timeout_s=MOST_S)
        run = hang if group.is_chief else fail
        strategy = types.SimpleNamespace(num_replicas_in_sync=2, run=run)
        with pytest.raises(RuntimeError) as caught:
            preflight.try_collectives(strategy, group, 2)
        both.wait(10)
        group.leave()
        return str(caught.value).splitlines()

    clusters = make_clusters(2)
    first, second = clusters[0].addresses
    for reason, *problems in on_each(attempt, clusters):
        assert reason.startswith("TensorFlow's collectives failed")
        assert problems == [
            f"  Worker 0 ({first}): still waiting after 2 s",
            f"  Worker 1 ({second}): OSError: a broken card",
        ]
