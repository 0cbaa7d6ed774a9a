"""Checks that several workers can train together."""

import threading
from collections.abc import Sequence

import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.parallel.collectives import all_gather, all_sum, reduce_scatter, replica_id
from plsc_tf.parallel.group import Group, SingleWorker
from plsc_tf.parallel.worker_lost import by_value
from plsc_tf.requirements import require

# Extra seconds, beyond the time limit, that a worker waits for the others' results.
PATIENCE_S = 10.0


def compare(facts: Sequence[dict]) -> None:
    """Checks that all workers have the same versions, flags and data.

    Args:
        facts: one dict per worker, such as {"versions.tensorflow": "2.17.1",
            "flags.batch_size": 64, "data": "sha"}.

    Raises:
        ValueError: the facts differ; the message lists the differences and the
            workers' values.
    """
    different = []
    for name in sorted(set().union(*facts)):
        values = [repr(one[name]) if name in one else "not set" for one in facts]
        if len(set(values)) > 1:
            different.append(f"  {name}: {by_value(dict(enumerate(values)))}")
    if different:
        raise ValueError(
            "The workers differ, so nothing was trained. Give all of them the same "
            "versions, flags and data:\n" + "\n".join(different)
        )


def try_collectives(
    strategy: tf.distribute.Strategy,
    group: Group | SingleWorker,
    timeout_s: float,
    gradient_dtype: str = "float32",
) -> None:
    """Runs every kind of collective that training needs once.

    Args:
        strategy: the `tf.distribute.Strategy` used for training.
        group: the workers' `Group`, or `SingleWorker`.
        timeout_s: time limit in seconds.
        gradient_dtype: the type in which gradients are summed.

    TensorFlow 2.17 lets NCCL handle float16, float32, float64, int32 and int64 only
    (`kValidDataTypes` in tensorflow/core/nccl/nccl_manager.cc).

    Raises:
        ValueError: NCCL cannot sum tensors of `gradient_dtype`.
        RuntimeError: a collective failed, exceeded the time limit or gave a wrong
            result; the message names the workers and the reasons. TensorFlow's
            collectives cannot be used afterwards.
        WorkerLostError: a worker was lost during the check, or did not take part.
    """
    fits = gradient_dtype != "bfloat16" or not private_apis.uses_nccl(strategy)
    advice = "Use gradient_dtype=float32, or float16 with use_fp16"
    require(fits, "TensorFlow's NCCL cannot sum bfloat16", advice)
    group.report_activity("trying the collectives")
    problem = _attempt(strategy, timeout_s, gradient_dtype)
    group.report_activity("tried the collectives")
    wait_s = timeout_s + PATIENCE_S
    problems = group.gather("preflight: collectives", problem, timeout_s=wait_s)
    lines = [f"  {n}: {p}" for n, p in zip(group.names, problems, strict=True) if p]
    if not lines:
        return
    raise RuntimeError(
        "TensorFlow's collectives failed, so nothing was trained. Check that no "
        "firewall blocks ports between the workers, that the other workers can reach "
        "each address, and that containers with GPUs share memory with their host "
        "(docker run --ipc=host). NCCL_DEBUG=INFO shows more.\n" + "\n".join(lines)
    )


def _attempt(strategy, timeout_s, gradient_dtype):
    """Runs the collectives in a thread; returns the problem or None, never hangs."""
    outcome = []

    def attempt():
        try:
            outcome.append(_wrong_result(strategy, gradient_dtype))
        except Exception as error:  # noqa: BLE001 - reported to all workers
            outcome.append(f"{type(error).__name__}: {error}")

    # A daemon thread, because a collective that hangs must not keep the process alive.
    thread = threading.Thread(target=attempt, name="preflight", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return outcome[0] if outcome else f"still waiting after {timeout_s:g} s"


def _wrong_result(strategy, gradient_dtype):
    """Runs the collectives; returns a description of a wrong result, or None."""
    count = strategy.num_replicas_in_sync

    def replica_function():
        own = tf.fill([2], replica_id())
        numbers = all_gather([tf.cast(own, tf.float32), tf.cast(own, tf.int64)])
        return {
            "all_gather float32": numbers[0],
            "all_gather int64": numbers[1],
            "all_gather int64 alone": all_gather(tf.cast(own, tf.int64)),
            "reduce_scatter": reduce_scatter(tf.ones([2 * count, 3])),
            "all_sum float32": all_sum(tf.ones([1])),
            "all_sum of gradients": all_sum(tf.ones([1], gradient_dtype)),
        }

    ids = [i for i in range(count) for _ in range(2)]
    results = tf.function(lambda: strategy.run(replica_function), autograph=False)()
    for name, result in results.items():
        expected = ids if name.startswith("all_gather") else count
        for local in strategy.experimental_local_results(result):
            found = tf.cast(local, tf.float32).numpy().ravel()
            if any(found != expected):
                return f"{name}: expected {expected}, received {found.tolist()}"
    return None
