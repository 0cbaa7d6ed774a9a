"""The strategy of one machine: all its GPUs, or logical CPU devices."""

import functools

import keras
import tensorflow as tf


def strategy(num_replicas=0):
    """Returns the `MirroredStrategy` over this machine's devices.

    The same call gives the same strategy object, so a notebook cell can be run
    twice.

    Args:
        num_replicas: how many replicas; 0 takes every GPU, or one CPU device where
            there is no GPU. Without enough GPUs the replicas are logical CPU
            devices, which are created here when TensorFlow has not started yet.

    Raises:
        ValueError: `num_replicas` is negative, or more GPUs are asked for than the
            machine has.
        RuntimeError: TensorFlow already runs with fewer logical CPU devices.
    """
    if num_replicas < 0:
        raise ValueError(
            "num_replicas must be 0 (every GPU, else one CPU device) or positive. "
            f"Received: num_replicas={num_replicas}"
        )
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if num_replicas > len(gpus):
            raise ValueError(
                f"num_replicas={num_replicas}, but this machine has {len(gpus)} "
                "GPU(s). Ask for at most that many, or hide the GPUs with "
                "CUDA_VISIBLE_DEVICES= to use logical CPU devices."
            )
        count = num_replicas or len(gpus)
        return _mirrored(tuple(f"GPU:{i}" for i in range(count)))
    count = num_replicas or 1
    _require_logical_cpus(count)
    return _mirrored(tuple(f"CPU:{i}" for i in range(count)))


def make_deterministic(seed):
    """Makes TensorFlow choose operations that always give the same results.

    It holds for the rest of the process; call it before anything is computed.

    Args:
        seed: of what TensorFlow and Keras draw where they are given no seed.
    """
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(seed)


def _require_logical_cpus(count):
    """Makes sure that TensorFlow has `count` logical CPU devices."""
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
    """One strategy per list of devices: a second one would break its collectives."""
    if not devices[0].startswith("CPU"):
        return tf.distribute.MirroredStrategy(devices)
    # Logical CPU devices share their memory: plain copies are up to 100 times faster
    # here than ring collectives, and a failed one does not poison the process.
    # HierarchicalCopyAllReduce halves the devices and forgets the odd one.
    copies = (
        tf.distribute.HierarchicalCopyAllReduce()
        if len(devices) % 2 == 0
        else tf.distribute.ReductionToOneDevice()
    )
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=copies)
