"""Checks that several workers can train together."""

import os
import threading
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from plsc_tf.parallel.collectives import all_gather, all_sum, reduce_scatter, replica_id

# Maximum number of differences in an error, and maximum characters of each value.
MOST_DIFFERENCES = 8
MOST_CHARACTERS = 80
# If a name contains one of these words, its value is not shown.
SECRETS = ("password", "token", "ugi", "secret")
# Extra seconds, beyond the time limit, that a worker waits for the others' results.
PATIENCE_S = 10.0


def compare(facts: Sequence[dict]) -> None:
    """Checks that all workers have the same versions, flags and data.

    Args:
        facts: one dict per worker with strings, numbers and nested dicts, such as
            {"versions": {"tensorflow": "2.17.1"}, "flags": {…}, "data": "sha"}.

    Raises:
        ValueError: the facts differ; the message lists the differences and the
            workers' values.
    """
    flat = [{name: repr(value) for name, value in _flatten(one)} for one in facts]
    different = []
    for name in sorted(set().union(*flat)):
        values = [one.get(name, "not set") for one in flat]
        if len(set(values)) > 1:
            different.append(f"  {name}: {_describe(name, values)}")
    if not different:
        return
    left_out = len(different) - MOST_DIFFERENCES
    if left_out > 0:
        different[MOST_DIFFERENCES:] = [f"  and {left_out} more"]
    raise ValueError(
        "The workers differ, so nothing was trained. Give all of them the same "
        "versions, flags and data:\n" + "\n".join(different)
    )


def try_collectives(
    strategy: tf.distribute.Strategy, group: Any, timeout_s: float
) -> None:
    """Runs every kind of collective that training needs once.

    Args:
        strategy: the `tf.distribute.Strategy` used for training.
        group: the workers' `plsc_tf.parallel.group.Group`, or None.
        timeout_s: time limit in seconds.

    Raises:
        RuntimeError: a collective failed, exceeded the time limit or gave a wrong
            result; the message names the workers and the reasons. TensorFlow's
            collectives cannot be used afterwards.
        WorkerLostError: a worker was lost during the check.
        TimeoutError: a worker did not take part.
    """
    if group:
        group.report_activity("trying the collectives")
    problem = _attempt(strategy, timeout_s)
    problems = [problem]
    if group:
        group.report_activity("tried the collectives")
        wait_s = timeout_s + PATIENCE_S
        problems = group.gather("preflight: collectives", problem, timeout_s=wait_s)
    names = group.names if group else ["This process"]
    lines = [f"  {n}: {p}" for n, p in zip(names, problems, strict=True) if p]
    if not lines:
        return
    raise RuntimeError(
        "TensorFlow's collectives failed, so nothing was trained. Check that no "
        "firewall blocks ports between the workers, and that the other workers can "
        "reach each address.\n" + "\n".join(lines)
    )


def _attempt(strategy, timeout_s):
    """Runs the collectives in a thread; returns the problem or None, never hangs."""
    outcome = []

    def attempt():
        try:
            outcome.append(_wrong_result(strategy))
        except Exception as error:  # noqa: BLE001 - reported to all workers
            outcome.append(f"{type(error).__name__}: {error}")

    # A daemon thread, because a collective that hangs must not keep the process alive.
    thread = threading.Thread(target=attempt, name="preflight", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return outcome[0] if outcome else f"still waiting after {timeout_s:g} s"


def _wrong_result(strategy):
    """Runs the collectives; returns a description of a wrong result, or None."""
    count = strategy.num_replicas_in_sync

    def replica_function():
        own = tf.fill([2], replica_id())
        sums = all_sum([tf.ones([3]), tf.ones([2, 2])])
        both = all_gather([tf.cast(own, tf.float32), tf.cast(own, tf.int64)])
        return {
            "all_gather of two, the first": both[0],
            "all_gather of two, the second": both[1],
            "reduce_scatter": reduce_scatter(tf.ones([2 * count, 3])),
            "all_gather float32": all_gather(tf.cast(own, tf.float32)),
            "all_gather int64": all_gather(tf.cast(own, tf.int64)),
            "all_sum float32": all_sum(tf.ones([1])),
            "all_sum float16": all_sum(tf.ones([1], tf.float16)),
            "all_sum bfloat16": all_sum(tf.ones([1], tf.bfloat16)),
            "all_sum of two, the first": sums[0],
            "all_sum of two, the second": sums[1],
        }

    ids = [i for i in range(count) for _ in range(2)]
    function = tf.function(lambda: strategy.run(replica_function), autograph=False)
    results = function()
    for name, result in results.items():
        expected = ids if name.startswith("all_gather") else count
        for local in strategy.experimental_local_results(result):
            found = tf.cast(local, tf.float32)
            if not bool(tf.reduce_all(found == tf.cast(expected, tf.float32))):
                values = found.numpy().ravel().tolist()
                return f"{name}: expected {expected}, received {values}"
    return None


def _flatten(facts, prefix=""):
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _describe(name, shown):
    """Describes which workers have which value."""
    if any(word in name.lower() for word in SECRETS):
        return "differs (its value is not shown)"
    workers = {}
    for index, value in enumerate(shown):
        workers.setdefault(value, []).append(str(index))
    # Show long values from shortly before the first difference.
    start = max(len(os.path.commonprefix(shown)) - MOST_CHARACTERS // 2, 0)
    return "; ".join(
        f"{_shorten(value, start)} on worker{'s'[: len(who) - 1]} {', '.join(who)}"
        for value, who in workers.items()
    )


def _shorten(text, start):
    if len(text) <= MOST_CHARACTERS:
        return text
    end = start + MOST_CHARACTERS
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
