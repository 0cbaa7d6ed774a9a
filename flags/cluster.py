"""The processes that train together."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


def _worker(name, job):
    if job.lower() == "ps":
        raise ValueError(
            f"{name}=ps: there are no parameter servers here. Every process is a "
            f"worker and holds its share of the classes. Leave {name} out, and list "
            "only workers in cluster_node_ips."
        )
    if job.lower() != "worker":
        raise ValueError(f"{name} must be worker. Received: {name}={job!r}.")


@dataclasses.dataclass(frozen=True)
class Cluster(OptionGroup):
    """Which machines train together, and how they communicate."""

    cluster_node_ips: tuple[str, ...] = option(
        (),
        "machines that train together, host or host:port, the same list in the same "
        "order on each; empty: this machine alone, or what the environment says (PLSC "
        "cluster_node_ips, FastNN worker_hosts)",
        aliases=("worker_hosts",),
        saved=False,
    )
    node_ip: str = option(
        "",
        "this machine's entry in cluster_node_ips; empty: the one whose address it has "
        "(PLSC node_ip)",
        saved=False,
    )
    task_index: int | None = option(
        None,
        "this machine's place in cluster_node_ips, from 0; None: node_ip decides "
        "(FastNN task_index)",
        lower=0,
        saved=False,
    )
    job_name: str = option(
        "worker",
        "kind of task of this process; all are worker (FastNN job_name)",
        check=_worker,
        saved=False,
    )
    node_port: int | None = option(
        None,
        "port of the first worker of each machine without a port in cluster_node_ips; "
        "the next workers have the next ports. None: 6170, and without "
        "cluster_node_ips free ones (Paddle started_port)",
        within="[1, 65535]",
        aliases=("started_port",),
        saved=False,
        applies="cluster",
    )
    num_workers: int = option(
        1,
        "processes on each machine. One drives all its GPUs; a CPU worker is one "
        "replica, so several use more cores. More than 1 needs `python -m "
        "plsc_tf.launch`",
        lower=1,
        saved=False,
    )
    cluster_resolver: str = option(
        "auto",
        "source of the cluster: flags (cluster_node_ips), tf_config (TF_CONFIG in the "
        "environment), slurm (a step of srun), none (this process alone), or auto: "
        "the first of TF_CONFIG, flags and Slurm that is set",
        choices=("auto", "none", "flags", "tf_config", "slurm"),
        saved=False,
    )
    join_timeout: float = option(
        300.0,
        "seconds in which all workers must have joined, before training",
        within="(0, inf)",
        saved=False,
        applies="cluster",
    )
    worker_timeout: float = option(
        30.0,
        "seconds of silence after which a worker counts as lost and all others end; "
        "one that died is noticed at once",
        within="(0, inf)",
        saved=False,
        applies="cluster",
    )
    step_timeout: float = option(
        600.0,
        "seconds that a step, or a batch, may take before the training ends with an "
        "error that shows where it hangs; 0: no limit",
        lower=0,
    )
    communication: str = option(
        "auto",
        "implementation of the collectives: ring (gRPC, any device), nccl (GPUs), or "
        "auto: TensorFlow's choice",
        choices=("auto", "ring", "nccl"),
        saved=False,
        applies="cluster",
    )
    gradient_bucket_mb: float = option(
        8.0,
        "gradients of the backbone are summed over the replicas in buckets of this "
        "size, in MB (10^6 bytes); 0: all in one, which is slow for large networks",
        lower=0,
        applies="buckets",
    )
    gradient_dtype: str = option(
        "float32",
        "type in which gradients of the backbone are sent and summed; the shorter ones "
        "halve the bytes and round. float16 loses values below 6e-8 unless there is a "
        "loss scale, bfloat16 does not",
        choices=("float32", "float16", "bfloat16"),
        applies="several_replicas",
    )

    REFUSED = {
        # task_index=0 without hosts is how FastNN's files say "one machine".
        "node_ip and no cluster_node_ips or task_index and no cluster_node_ips": (
            "node_ip and task_index select this machine from cluster_node_ips: set "
            "that list too."
        ),
    }
