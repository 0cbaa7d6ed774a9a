"""Creates strategies for a machine's GPUs, logical CPU devices or a whole cluster."""

import functools
import itertools
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.parallel import gpus
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.requirements import require


def strategy(num_replicas: int = 0) -> tf.distribute.MirroredStrategy:
    """Returns a `MirroredStrategy` over this machine's devices.

    Calls with the same devices return the same object, so a notebook cell can be run
    twice.

    Args:
        num_replicas: number of replicas; 0 uses every GPU, or one CPU device if there
            are no GPUs. Without GPUs, or if CUDA_VISIBLE_DEVICES or
            `tf.config.set_visible_devices` hides them, the replicas are logical CPU
            devices, which this function creates unless enough exist; TensorFlow must
            not have started yet.

    Raises:
        ValueError: `num_replicas` is negative, exceeds the number of GPUs, or asks for
            GPUs that TensorFlow does not find.
        RuntimeError: a GPU does not work or has no memory left, or TensorFlow is
            already running with fewer logical CPU devices.
    """
    rule = "num_replicas must be positive, or 0: all GPUs, or one CPU if there are none"
    require(num_replicas >= 0, rule, num_replicas=num_replicas)
    if count := gpus.to_use(num_replicas):
        return _mirrored(tuple(f"GPU:{i}" for i in range(count)))
    count = num_replicas or 1
    _require_logical_cpus(count)
    return _mirrored(tuple(f"CPU:{i}" for i in range(count)))


# One day, to disable TensorFlow's own heartbeats: they would drop a slow worker after
# 10 seconds without naming it. `plsc_tf.parallel.group` detects lost workers instead.
HEARTBEAT_MS = 24 * 3600 * 1000


def cluster_strategy(
    cluster: Cluster, num_gpus: int = 0, *, implementation: str = "auto"
) -> tf.distribute.MultiWorkerMirroredStrategy:
    """Returns a `MultiWorkerMirroredStrategy` over the devices of all workers.

    It starts this process's TensorFlow server and waits for the other workers' servers.
    Call it once in every worker, at about the same time, before any computation.
    TensorFlow holds Python's global interpreter lock while waiting, so no other thread
    runs.

    Args:
        cluster: the `plsc_tf.parallel.cluster.Cluster`.
        num_gpus: number of this worker's GPUs to use; 0 uses all. Without GPUs, a
            worker has one replica.
        implementation: the collectives' implementation: "ring", "nccl", or "auto",
            which is a ring.

    Raises:
        RuntimeError: a GPU does not work or has no memory left.
    """
    if num_gpus:
        visible = tf.config.get_visible_devices("GPU")
        tf.config.set_visible_devices(visible[:num_gpus], "GPU")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.index,
        rpc_layer="grpc",
    )
    private_apis.configure_coordination(list(cluster.addresses), HEARTBEAT_MS)
    kinds = tf.distribute.experimental.CommunicationImplementation
    kind = kinds[implementation.upper()]
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
    gpus.require_working([gpu.name for gpu in tf.config.list_logical_devices("GPU")])
    return strategy


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of processes that a strategy spans."""
    if strategy.num_replicas_in_sync == 1:
        return 1  # TensorFlow's default strategy has no list of devices
    return strategy.num_replicas_in_sync // len(strategy.extended.worker_devices)


def local_devices(strategy: tf.distribute.Strategy) -> Sequence[str]:
    """Returns the device of each replica of this process, in order."""
    if tf.distribute.has_strategy() or strategy is not tf.distribute.get_strategy():
        return strategy.extended.worker_devices
    # TensorFlow's default strategy has no list of devices.
    gpus = tf.config.list_logical_devices("GPU")
    return [gpus[0].name if gpus else "/device:CPU:0"]


def device_kind(strategy: tf.distribute.Strategy) -> str:
    """Returns the kind of device that the replicas run on, "CPU" or "GPU"."""
    return tf.DeviceSpec.from_string(local_devices(strategy)[0]).device_type


def local_replicas(strategy: tf.distribute.Strategy) -> range:
    """Returns the numbers of the replicas that this process runs."""
    workers = num_workers(strategy)
    count = strategy.num_replicas_in_sync // workers
    first = strategy.cluster_resolver.task_id * count if workers > 1 else 0
    return range(first, first + count)


def gather(strategy: tf.distribute.Strategy, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenates one numpy array from each replica; all workers must call it.

    With several workers, booleans and unsigned integers come back as int32, because
    TensorFlow cannot gather them.

    Args:
        strategy: the `tf.distribute.Strategy`.
        parts: one array `[n, ...]` for each replica of this process, in order.

    Returns:
        The arrays of all workers' replicas, `[replicas · n, ...]`, on every worker.
    """
    if num_workers(strategy) == 1:
        return np.concatenate(parts)
    if parts[0].dtype.kind in "bu":
        parts = [value.astype(np.int32) for value in parts]
    own = itertools.count()
    held = strategy.experimental_distribute_values_from_function(
        lambda _: tf.convert_to_tensor(parts[next(own)])
    )
    return strategy.gather(held, axis=0).numpy()


def make_deterministic(seed: int) -> None:
    """Makes TensorFlow use only deterministic operations.

    This applies to the rest of the process; call it before any computation.

    Args:
        seed: random seed for TensorFlow and Keras, used wherever no other seed is set.
    """
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(seed)


def _require_logical_cpus(count):
    """Creates `count` logical CPU devices unless enough exist."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    configured = tf.config.get_logical_device_configuration(cpu) or [None]
    if len(configured) >= count:
        return
    devices = [tf.config.LogicalDeviceConfiguration()] * count
    try:
        tf.config.set_logical_device_configuration(cpu, devices)
    except RuntimeError as error:
        raise RuntimeError(
            f"num_replicas={count} needs {count} logical CPU devices, but TensorFlow "
            f"already runs with {len(configured)}. Call plsc_tf.strategy() before "
            "any other use of TensorFlow in this process (in a notebook: restart "
            "the kernel)."
        ) from error


@functools.cache
def _mirrored(devices):
    """Returns the only strategy for these devices.

    A second strategy for the same devices would break the first one's collectives.
    """
    if not devices[0].startswith("CPU"):
        gpus.require_working(devices)
        return tf.distribute.MirroredStrategy(devices)
    # Logical CPU devices share their memory, so plain copies are up to 100 times as
    # fast as ring collectives, and a failed copy does not break later ones.
    # HierarchicalCopyAllReduce splits the devices in two halves and, if their number is
    # odd, ignores one.
    copies = tf.distribute.ReductionToOneDevice()
    if len(devices) % 2 == 0:
        copies = tf.distribute.HierarchicalCopyAllReduce()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=copies)
