"""The workers of a Slurm step: the processes that one `srun` has started."""

from plsc_tf.parallel import addresses

_NEEDED = (
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURMD_NODENAME",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
)


def in_step(environ):
    """Whether this is one of several processes that srun has started."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
    return "SLURM_PROCID" in environ and tasks.isdecimal() and int(tasks) > 1


def read(first_port, environ):
    """Returns (addresses, index of this process); TensorFlow reads the list of nodes.

    Its resolver sorts the nodes by name, while Slurm numbers tasks in an order of its
    own. So this worker is found by its node and its number on that node.

    Args:
        first_port: port of the first worker of each node.
        environ: the environment of this process, `os.environ`.

    Raises:
        ValueError: this is no step of Slurm, or its variables do not fit together.
    """
    missing = [name for name in _NEEDED if name not in environ]
    if missing:
        raise ValueError(
            "cluster_resolver=slurm is for processes that srun starts. The environment "
            f"lacks {', '.join(missing)}."
        )
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=first_port,
        # Left to itself it divides by the number of GPUs, which may be 0, and changes
        # CUDA_VISIBLE_DEVICES, which is Slurm's to set.
        gpus_per_node=int(environ["SLURM_STEP_NUM_TASKS"]),
        gpus_per_task=1,
        auto_set_gpu=False,
    )
    found = addresses.check(resolver.cluster_spec().as_dict()["worker"], "Slurm")
    port = first_port + int(environ["SLURM_LOCALID"])
    own = addresses.join(environ["SLURMD_NODENAME"].lower(), port)
    if own not in found:
        raise ValueError(
            f"Slurm: this worker, {own}, is none of the step's: {', '.join(found)}."
        )
    return found, found.index(own)
