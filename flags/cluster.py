"""Defines the options of a cluster of worker processes."""

import functools

from plsc_tf.flags.option import Amount, Count, OptionGroup, Positive, option

# Options that belong to one machine or one start; `flags.cfg` must not repeat them.
_unsaved = functools.partial(option, saved=False)
_in_cluster = functools.partial(_unsaved, applies="cluster")


class Cluster(OptionGroup):
    """Options for the machines of a cluster and their communication."""

    cluster_node_ips: tuple[str, ...] = _unsaved(
        (),
        "host or host:port of every machine, the same list on each; empty: as the "
        "environment defines, or this machine alone (PLSC)",
        aliases="worker_hosts",
    )
    node_ip: str = _unsaved("", "this machine's entry in cluster_node_ips (PLSC)")
    task_index: Count | None = _unsaved(
        None, "index of this machine in cluster_node_ips (FastNN)"
    )
    job_name: str = _unsaved("worker", "kind of process; must be worker (FastNN)")
    node_port: int | None = _in_cluster(
        None,
        "port of the first worker; None: 6170, or any on a single machine (Paddle)",
        within="[1, 65535]",
        aliases="started_port",
    )
    num_workers: Positive = _unsaved(
        1, "processes per machine, started by `python -m plsc_tf.launch`"
    )
    cluster_resolver: str = _unsaved(
        "auto",
        "auto: a cluster if TF_CONFIG, cluster_node_ips or Slurm describe one; none: "
        "this process alone",
        choices="auto none",
    )
    cluster_secret_file: str = _in_cluster(
        "",
        "file with the secret that authenticates the workers, the same for all, "
        "created if missing, readable by its owner only; empty: the launcher's secret, "
        "if it starts all workers",
    )
    join_timeout: float = _in_cluster(
        300.0, "seconds within which all workers must join", within="(0, inf)"
    )
    worker_timeout: float = _in_cluster(
        30.0, "seconds of silence after which a worker is lost", within="(0, inf)"
    )
    step_timeout: Amount = option(
        600.0,
        "longest time of a step, or of preparing its batch, in seconds; 0: no limit",
    )
    communication: str = _in_cluster(
        "auto",
        "collectives: ring (gRPC), nccl (GPUs), or auto (TensorFlow chooses)",
        choices="auto ring nccl",
    )
    gradient_bucket_mb: Amount = option(
        8.0, "megabytes of gradients to sum at once; 0: all", applies="buckets"
    )
    gradient_dtype: str = option(
        "float32",
        "type in which the backbone's gradients are sent and summed",
        choices="float32 float16 bfloat16",
        applies="several_replicas",
    )

    REFUSED = {
        "no job_name=worker,Worker": "job_name must be worker, because there are no "
        "parameter servers.",
        # In FastNN's files, task_index=0 without hosts means "one machine".
        "node_ip and no cluster_node_ips or task_index and no cluster_node_ips": (
            "node_ip and task_index each select an entry of cluster_node_ips. Set it."
        ),
    }
