"""Which workers this machine starts, and what tells each of them its place."""

import dataclasses
import glob
import os

from plsc_tf.parallel import addresses, machines
from plsc_tf.parallel.cluster import Cluster, resolve

_HERE = "127.0.0.1"
_GPUS = "CUDA_VISIBLE_DEVICES"


@dataclasses.dataclass(frozen=True)
class Plan:
    """The workers of a cluster, and those among them that are this machine's.

    Attributes:
        size: number of workers in the cluster.
        local: indices of this machine's.
        addresses: "host:port" of all; None: this machine alone, on free ports.
        gpus: CUDA_VISIBLE_DEVICES of each local worker; None: left as it is.
    """

    size: int
    local: range
    addresses: tuple[str, ...] | None
    gpus: tuple[str, ...] | None

    def places(self):
        """Returns the `Cluster` of each local worker, with new ports if they are free.

        Raises:
            OSError: a worker could not listen on its address.
        """
        members = self.addresses
        if members is None:
            ports = addresses.free_ports(_HERE, self.size)
            members = tuple(addresses.join(_HERE, port) for port in ports)
        if self.size > 1:
            for i in self.local:
                addresses.require_free(members[i])
        return [Cluster(members, i, "launcher") for i in self.local]

    def environment(self, cluster, environ):
        """Returns the environment of a local worker.

        Args:
            cluster: its place, one of `places`.
            environ: the environment of the launcher.
        """
        # Lines shall reach the logs when they are printed, not when a buffer is full.
        result = {"PYTHONUNBUFFERED": "1", **environ}
        result.pop("TF_CONFIG", None)
        if self.size > 1:
            result["TF_CONFIG"] = cluster.tf_config()
        if self.gpus is not None:
            result[_GPUS] = self.gpus[cluster.index - self.local.start]
        return result


def make_plan(options, selected_gpus, environ):
    """Returns the `Plan` for this machine.

    Args:
        options: the option group `cluster`.
        selected_gpus: numbers of the GPUs to use; empty: all.
        environ: the environment of the launcher.

    Raises:
        ValueError: the cluster makes no sense (as `cluster.resolve`), or the GPUs
            cannot be shared out.
    """
    count = options.num_workers
    gpus = split_gpus(selected_gpus, count, environ)
    found = resolve(dataclasses.replace(options, num_workers=1), environ)
    source = found.source if found else None
    if source == "Slurm":
        raise ValueError(
            "Slurm starts the workers itself: `srun python -m plsc_tf.train ...`, "
            "without the launcher. With it, run one per node and give "
            '--cluster_node_ips="$(scontrol show hostnames | paste -sd,)".'
        )
    if source == "TF_CONFIG":
        if count > 1:
            raise ValueError(
                f"TF_CONFIG in the environment says that this is worker {found.index} "
                f"of {found.size}, so num_workers is 1. Received: num_workers={count}."
            )
        local = range(found.index, found.index + 1)
        return Plan(found.size, local, found.addresses, gpus)
    members = _addresses(options)
    size = len(members) if members else count
    first = found.index * count if found else 0
    return Plan(size, range(first, first + count), members, gpus)


def _addresses(options):
    """Returns the addresses that the flags say, None: any free ports do."""
    if options.cluster_node_ips and options.cluster_resolver != "none":
        return machines.worker_addresses(options)
    if options.node_port is None:
        return None
    ports = range(options.node_port, options.node_port + options.num_workers)
    return addresses.check([addresses.join(_HERE, port) for port in ports], "node_port")


def split_gpus(selected, count, environ, devices="/dev"):
    """Returns CUDA_VISIBLE_DEVICES of each worker, None to leave it as it is.

    Args:
        selected: numbers of the GPUs to use; empty: all.
        count: number of workers on this machine.
        environ: the environment; its CUDA_VISIBLE_DEVICES says which GPUs there are.
        devices: folder of the device files.

    Raises:
        ValueError: the GPUs cannot be split evenly, or one is not to be seen.
    """
    visible = environ.get(_GPUS)
    has_gpus = glob.glob(os.path.join(devices, "nvidia[0-9]*"))
    if not selected:
        if count > 1 and (has_gpus if visible is None else visible not in ("", "-1")):
            raise ValueError(
                f"num_workers={count} workers cannot all have all GPUs: say with "
                "selected_gpus=0,1,... which to share out, or set "
                f"{_GPUS}=-1 to train on the CPU."
            )
        return None
    names = [str(gpu) for gpu in selected]
    if visible is not None:
        hidden = [name for name in names if name not in visible.split(",")]
        if hidden:
            raise ValueError(
                f"selected_gpus has {', '.join(hidden)}, but {_GPUS}={visible!r} hides "
                "them. Choose among these, or unset it."
            )
    share, rest = divmod(len(names), count)
    if rest or not share:
        raise ValueError(
            f"{len(names)} GPUs cannot be split evenly over num_workers={count}. "
            f"Received: selected_gpus={','.join(names)}."
        )
    # Windows shows its GPUs to Linux as one device without a number.
    if visible is None and not os.path.exists(os.path.join(devices, "dxg")):
        _require_gpus(selected, len(has_gpus))
    return tuple(",".join(names[i * share : (i + 1) * share]) for i in range(count))


def _require_gpus(selected, count):
    """Raises ValueError for GPUs that this machine does not have."""
    missing = [str(gpu) for gpu in selected if gpu >= count]
    if missing:
        there = f"only GPUs 0 to {count - 1}" if count > 1 else f"{count or 'no'} GPU"
        raise ValueError(
            f"selected_gpus has {', '.join(missing)}, but this machine has {there}. "
            + ("Choose among these." if count else "Leave it out to use the CPU.")
        )
