"""Which processes train together, and which of them this one is.

A worker is one process, a member of the cluster; worker 0 is the chief. The cluster is
said by TF_CONFIG (the launcher and Kubeflow's TFJob write it), by flags, or by Slurm.
"""

import dataclasses
import json

from plsc_tf.parallel import machines, slurm, tf_config


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers that train together, seen by one of them.

    Attributes:
        addresses: "host:port" of every worker.
        index: which of them this process is.
        source: where that was said.
    """

    addresses: tuple[str, ...]
    index: int
    source: str

    @property
    def size(self):
        """The number of workers."""
        return len(self.addresses)

    @property
    def is_chief(self):
        """Whether this is worker 0, which writes what is written once."""
        return self.index == 0

    @property
    def address(self):
        """The "host:port" of this worker."""
        return self.addresses[self.index]

    def tf_config(self):
        """Returns the text of TF_CONFIG for this worker."""
        return json.dumps(
            {
                "cluster": {"worker": self.addresses},
                "task": {"type": "worker", "index": self.index},
            }
        )


def resolve(options, environ):
    """Returns the `Cluster` of this process, None when it is alone.

    Args:
        options: the option group `cluster`.
        environ: the environment, as `os.environ`.

    Raises:
        ValueError: what the flags or the environment say is malformed or no cluster
            that can train; TF_CONFIG and the flags differ; this machine is none of
            cluster_node_ips, or more than one.
    """
    wanted = options.cluster_resolver
    if wanted == "none":
        return None
    if wanted in ("auto", "tf_config"):
        said = tf_config.read(environ.get("TF_CONFIG", ""))
        if said:
            if wanted == "auto" and options.cluster_node_ips:
                _require_same(said, options)
            return _cluster(said, "TF_CONFIG")
    if options.num_workers > 1:
        raise ValueError(
            f"num_workers={options.num_workers} processes per machine are started by "
            "python -m plsc_tf.launch; give it num_workers, before the --."
        )
    if wanted in ("auto", "flags") and options.cluster_node_ips:
        said = (
            machines.worker_addresses(options),
            machines.own_index(options, environ),
        )
        return _cluster(said, "cluster_node_ips")
    if wanted == "slurm" or (wanted == "auto" and slurm.in_step(environ)):
        return _cluster(slurm.read(machines.first_port(options), environ), "Slurm")
    if wanted != "auto":
        missing = {"flags": "cluster_node_ips", "tf_config": "TF_CONFIG"}[wanted]
        raise ValueError(f"cluster_resolver={wanted}, but {missing} names no workers.")
    return None


def _cluster(said, source):
    """Returns the `Cluster` of (addresses, index), None where there is one address."""
    addresses, index = said
    return Cluster(addresses, index, source) if len(addresses) > 1 else None


def _require_same(said, options):
    """Compares what TF_CONFIG says with what the flags say too."""
    addresses, index = said
    by_flags = machines.worker_addresses(options)
    if by_flags != addresses:
        raise ValueError(
            f"TF_CONFIG has the workers {', '.join(addresses)}, but cluster_node_ips "
            f"means {', '.join(by_flags)}. Leave one of them out, or choose with "
            "cluster_resolver=tf_config or flags."
        )
    machine = machines.named_index(options)
    if machine not in (None, index // options.num_workers):
        raise ValueError(
            f"TF_CONFIG says that this is worker {index}, {addresses[index]}, but "
            f"node_ip or task_index name {options.cluster_node_ips[machine]}. Leave "
            "them out."
        )
