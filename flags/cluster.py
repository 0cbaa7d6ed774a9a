"""Defines the options of a cluster of worker processes."""

import functools

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option

_WORKER = checks.rule(
    "be worker: there are no parameter servers, each worker holds a share of the "
    "classes",
    lambda job: job.lower() == "worker",
)
# Options that are specific to a machine or a start; `flags.cfg` must not repeat them.
_unsaved = functools.partial(option, saved=False)


class Cluster(OptionGroup):
    """Options for the machines of a cluster and their communication."""

    cluster_node_ips: tuple[str, ...] = _unsaved(
        (),
        "machines that train together, host or host:port, the same list on each of "
        "them; empty: as the environment defines, or this machine alone (PLSC; FastNN"
        " worker_hosts)",
        aliases=("worker_hosts",),
    )
    node_ip: str = _unsaved("", "this machine's entry in cluster_node_ips (PLSC)")
    task_index: int | None = _unsaved(
        None,
        "index of this machine in cluster_node_ips; None: by node_ip (FastNN)",
        lower=0,
    )
    job_name: str = _unsaved(
        "worker", "kind of process; only worker is allowed (FastNN)", check=_WORKER
    )
    node_port: int | None = _unsaved(
        None,
        "port of the first worker on a machine; None: 6170, or any free port on a "
        "single machine (Paddle)",
        within="[1, 65535]",
        aliases=("started_port",),
        applies="cluster",
    )
    num_workers: int = _unsaved(
        1,
        "processes on each machine; for more than 1, use `python -m plsc_tf.launch`",
        lower=1,
    )
    cluster_resolver: str = _unsaved(
        "auto",
        "source of the cluster; auto: the first source that is set",
        choices=("auto", "none", "flags", "tf_config", "slurm"),
    )
    join_timeout: float = _unsaved(
        300.0,
        "seconds within which all workers must join before training",
        within="(0, inf)",
        applies="cluster",
    )
    worker_timeout: float = _unsaved(
        30.0,
        "seconds of silence after which a worker counts as lost",
        within="(0, inf)",
        applies="cluster",
    )
    step_timeout: float = option(
        600.0, "longest time of a step or a batch, in seconds; 0: no limit", lower=0
    )
    communication: str = _unsaved(
        "auto",
        "implementation of collectives: ring (gRPC), nccl (GPUs), or auto, which lets"
        " TensorFlow choose",
        choices=("auto", "ring", "nccl"),
        applies="cluster",
    )
    gradient_bucket_mb: float = option(
        8.0,
        "megabytes of backbone gradients to sum in one collective; 0: all",
        lower=0,
        applies="buckets",
    )
    gradient_dtype: str = option(
        "float32",
        "type in which the backbone's gradients are sent and summed",
        choices=("float32", "float16", "bfloat16"),
        applies="several_replicas",
    )

    REFUSED = {
        # In FastNN's files, task_index=0 without hosts means "one machine".
        "node_ip and no cluster_node_ips or task_index and no cluster_node_ips": (
            "node_ip and task_index select this machine from cluster_node_ips: set "
            "that list too."
        ),
    }
