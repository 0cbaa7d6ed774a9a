"""The launcher's plan: which workers this machine starts, and how."""

import dataclasses
import glob
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from plsc_tf.parallel import addresses, joining
from plsc_tf.parallel.cluster import SECRET, Cluster, resolve, worker_addresses
from plsc_tf.requirements import require

_HERE = "127.0.0.1"
_GPUS = "CUDA_VISIBLE_DEVICES"


@dataclasses.dataclass(frozen=True)
class Plan:
    """The workers of a cluster, and which of them this machine starts.

    Attributes:
        size: number of workers in the cluster.
        local: indices of this machine's workers.
        addresses: "host:port" of all workers; None if all run on this machine and use
            free ports.
        gpus: CUDA_VISIBLE_DEVICES of each local worker; None leaves it unchanged.
        secret: the workers' secret, if all of them run on this machine.
    """

    size: int
    local: range
    addresses: tuple[str, ...] | None
    gpus: tuple[str, ...] | None
    secret: str = dataclasses.field(default_factory=secrets.token_hex, repr=False)

    def places(self) -> list[Cluster]:
        """Returns each local worker's `Cluster`; every call chooses new free ports.

        Raises:
            JoinError: a worker cannot listen on its address.
        """
        members = self.addresses or addresses.free_addresses(self.size)
        clusters = [Cluster(members, i, "launcher") for i in self.local]
        for cluster in clusters if self.size > 1 else ():
            joining.listen(cluster).close()
        return clusters

    def environment(self, cluster: Cluster, base: Mapping[str, str]) -> dict[str, str]:
        """Returns a local worker's environment variables.

        Args:
            cluster: the worker's `Cluster`, as returned by `places`.
            base: the launcher's environment variables.
        """
        # Without buffering, printed lines reach the logs immediately.
        result = {"PYTHONUNBUFFERED": "1", **base}
        result.pop("TF_CONFIG", None)
        if self.size > 1:
            result["TF_CONFIG"] = cluster.tf_config()
            if len(self.local) == self.size:  # no other launcher starts workers
                result[SECRET] = self.secret
        if self.gpus is not None:
            result[_GPUS] = self.gpus[cluster.index - self.local.start]
        return result


def make_plan(
    options: Any, selected_gpus: Sequence[int], environ: Mapping[str, str]
) -> Plan:
    """Returns this machine's `Plan`.

    Args:
        options: the option group `cluster`.
        selected_gpus: numbers of the GPUs to use; empty for all.
        environ: the launcher's environment variables.

    Raises:
        ValueError: the cluster is invalid (see `cluster.resolve`), or the GPUs cannot
            be divided among the workers.
    """
    count = options.num_workers
    gpus = split_gpus(selected_gpus, count, environ)
    cluster = resolve(dataclasses.replace(options, num_workers=1), environ)
    source = cluster.source if cluster else None
    rule = "Slurm starts the workers itself, by srun python -m plsc_tf.train ..."
    nodes = '--cluster_node_ips="$(scontrol show hostnames | paste -sd,)"'
    require(source != "Slurm", rule, f"Or run one launcher per node, with {nodes}")
    if cluster and source == "TF_CONFIG":
        place = f"worker {cluster.index} of {cluster.size}"
        rule = f"TF_CONFIG says that this is {place}, so num_workers must be 1"
        require(count == 1, rule, num_workers=count)
        local = range(cluster.index, cluster.index + 1)
        return Plan(cluster.size, local, cluster.addresses, gpus)
    members = _addresses(options)
    size = len(members) if members else count
    first = cluster.index * count if cluster else 0
    return Plan(size, range(first, first + count), members, gpus)


def _addresses(options):
    """Returns the addresses given by the flags, or None to use free ports."""
    if options.cluster_node_ips and options.cluster_resolver != "none":
        return worker_addresses(options)
    if options.node_port is None:
        return None
    ports = range(options.node_port, options.node_port + options.num_workers)
    return addresses.check([addresses.join(_HERE, port) for port in ports], "node_port")


def split_gpus(
    selected: Sequence[int],
    count: int,
    environ: Mapping[str, str],
    devices: str | os.PathLike = "/dev",
) -> tuple[str, ...] | None:
    """Returns each worker's CUDA_VISIBLE_DEVICES, or None to leave it unchanged.

    Args:
        selected: numbers of the GPUs to use; empty for all.
        count: number of workers on this machine.
        environ: the environment variables; if CUDA_VISIBLE_DEVICES is set, it lists the
            available GPUs.
        devices: folder of the device files.

    Raises:
        ValueError: the GPUs cannot be divided evenly, a GPU is hidden or missing, or
            several workers would all use all GPUs.
    """
    visible = environ.get(_GPUS)
    has_gpus = glob.glob(os.path.join(devices, "nvidia[0-9]*"))
    if not selected:
        some = has_gpus if visible is None else visible not in ("", "-1")
        rule = f"num_workers={count}, but the workers cannot each use all GPUs"
        advice = f"Set selected_gpus=0,1,... to divide them, or {_GPUS}=-1 for the CPU"
        require(count == 1 or not some, rule, advice)
        return None
    names = [str(gpu) for gpu in selected]
    if visible is not None:
        hidden = [name for name in names if name not in visible.split(",")]
        place = f"{_GPUS}={visible!r}"
        rule = f"selected_gpus has {', '.join(hidden)}, but {place} hides them"
        require(not hidden, rule, f"Choose GPUs that it lists, or unset {_GPUS}")
    share, rest = divmod(len(names), count)
    rule = f"{len(names)} GPUs cannot be split evenly over num_workers={count}"
    require(share and not rest, rule, selected_gpus=",".join(names))
    # WSL exposes all GPUs as the single device `dxg`, so they cannot be counted.
    if visible is None and not os.path.exists(os.path.join(devices, "dxg")):
        missing = ", ".join(str(gpu) for gpu in selected if gpu >= len(has_gpus))
        here = f"this machine has {len(has_gpus)} GPUs, counted from 0"
        advice = "Choose among these, or leave out selected_gpus"
        require(not missing, f"selected_gpus has {missing}, but {here}", advice)
    return tuple(",".join(names[i * share : (i + 1) * share]) for i in range(count))


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns (the launcher's arguments, the workers' script and arguments).

    `--` separates the two. As in Paddle's launcher, a script does not need it: without
    `--`, the workers' part starts at the first word that ends in .py.

    Args:
        argv: the arguments after the launcher's name.
    """
    argv = list(argv)
    if "--" in argv:
        place = argv.index("--")
        return argv[:place], argv[place + 1 :]
    for place, word in enumerate(argv):
        if word.endswith(".py") and not word.startswith("-"):
            return argv[:place], argv[place:]
    return argv, []


def command(module: str, words: Sequence[str]) -> list[str]:
    """Returns a worker's command line.

    Args:
        module: module to run if the first word is not a script.
        words: the script and its arguments, or only arguments.

    Raises:
        FileNotFoundError: the script does not exist.
    """
    if words and words[0].endswith(".py"):
        if not os.path.isfile(words[0]):
            raise FileNotFoundError(f"The script {words[0]!r} does not exist.")
        return [sys.executable, *words]
    return [sys.executable, "-m", module, *words]
