"""Determines which processes train together, and this process's index among them.

A worker is one process of the cluster; worker 0 is the chief. TF_CONFIG (from the
launcher or Kubeflow's TFJob), flags or Slurm describe the cluster. The names of the
flags come from Paddle's launcher, except for FastNN's task_index.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from typing import Any, NoReturn

from plsc_tf.parallel import addresses
from plsc_tf.requirements import require

# The default of started_port in Paddle's launcher.
DEFAULT_PORT = 6170
# The environment variable in which the launcher gives its workers their secret.
SECRET = "PLSC_TF_CLUSTER_SECRET"
# The environment variable with a pod's index in an indexed Kubernetes job.
_POD_INDEX = "JOB_COMPLETION_INDEX"
_KINDS = ("chief", "worker")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers that train together, and this process's index among them.

    Attributes:
        addresses: "host:port" of every worker.
        index: this worker's index.
        source: where the addresses come from, for messages.
        secret: bytes that only the workers know; with them they sign their messages.
            Empty if there is none.
    """

    addresses: tuple[str, ...]
    index: int
    source: str
    secret: bytes = dataclasses.field(default=b"", repr=False)

    @property
    def key(self) -> bytes:
        """Signs messages, so that a cluster with another chief does not accept them."""
        return self.secret + self.addresses[0].encode()

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.addresses)

    @property
    def is_chief(self) -> bool:
        """True for worker 0, which writes the files that only one worker writes."""
        return self.index == 0

    @property
    def address(self) -> str:
        """This worker's "host:port"."""
        return self.addresses[self.index]

    def tf_config(self) -> str:
        """Returns the value of TF_CONFIG for this worker."""
        task = {"type": "worker", "index": self.index}
        return json.dumps({"cluster": {"worker": self.addresses}, "task": task})


def resolve(options: Any, environ: Mapping[str, str]) -> Cluster | None:
    """Returns this process's `Cluster`, or None if it trains alone.

    Args:
        options: the option group `cluster`.
        environ: the environment variables, such as `os.environ`.

    Raises:
        ValueError: the flags or the environment are malformed or describe an unusable
            cluster; TF_CONFIG and the flags differ; or this machine's entry of
            cluster_node_ips is unknown.
        OSError: cluster_secret_file cannot be read or created.
    """
    members, index, source = _find_workers(options, environ)
    if len(members) < 2:
        return None
    return Cluster(members, index, source, _secret(options, environ))


def _find_workers(options, environ):
    """Returns (addresses, own index, source); no addresses for a process alone."""
    alone = (), 0, ""
    if options.cluster_resolver == "none":
        return alone
    if place := _from_tf_config(environ.get("TF_CONFIG", "")):
        if options.cluster_node_ips:
            _require_same(*place, options, environ)
        return *place, "TF_CONFIG"
    count, rule = options.num_workers, "This command starts one worker"
    advice = "Give num_workers to python -m plsc_tf.launch, before the --"
    require(count <= 1, rule, advice, num_workers=count)
    if options.cluster_node_ips:
        members, index = worker_addresses(options), _own_index(options, environ)
        rule = "cluster_node_ips does not say which of its entries is this machine"
        require(index is not None, rule, "Set node_ip or task_index on each machine")
        return members, index, "cluster_node_ips"
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")  # processes started by srun
    if "SLURM_PROCID" in environ and tasks.isdecimal() and int(tasks) > 1:
        return *_from_slurm(_first_port(options), environ), "Slurm"
    return alone


def _secret(options, environ):
    """Returns the workers' secret, or b"" if there is none."""
    if not (path := options.cluster_secret_file):
        return environ.get(SECRET, "").encode()
    if not os.path.exists(path):
        _create_secret(path)
    # Opening a FIFO would wait for a writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        own = stat.S_ISREG(found.st_mode) and found.st_uid in (0, os.geteuid())
        alone = own and not found.st_mode & 0o077
        rule = "must be a file of this user or of root that only its owner can read"
        advice = f"Others may know the secret: name a new file, or chmod 600 {path}"
        require(alone, f"cluster_secret_file {rule}", advice)
        secret = file.read().strip()
    rule = "cluster_secret_file must have at least 16 bytes"
    advice = f"Remove {path}; the next start creates a new one"
    require(len(secret) >= 16, rule, advice, bytes=len(secret))
    return secret


def _create_secret(path):
    """Creates a secret's file, readable by its owner only, unless it exists."""
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or ".") as new:
        new.write(secrets.token_hex(32).encode())
        new.flush()
        # Of several workers that start at the same time, one creates the file.
        with contextlib.suppress(FileExistsError):
            os.link(new.name, path)


def _require_same(members, index, options, environ):
    """Raises ValueError if the flags contradict TF_CONFIG's (addresses, own index)."""
    machine, by_flags = _own_index(options, environ), worker_addresses(options)
    fits = by_flags == members and machine in (None, index // options.num_workers)
    rule = f"TF_CONFIG says that this is worker {index} of {', '.join(members)}"
    advice = "Remove TF_CONFIG, or these flags"
    flags = {name: getattr(options, name) for name in ("node_ip", "task_index")}
    require(fits, rule, advice, cluster_node_ips=",".join(by_flags), **flags)


def _from_tf_config(text):
    """Returns (addresses, this process's index), or None if the text has no cluster.

    The chief comes before the workers, as in TensorFlow. The index may be a string, as
    some systems write it.
    """
    try:
        content = json.loads(text or "{}")
        if not content.get("cluster"):
            return None
        kind, index = content["task"]["type"], int(content["task"]["index"])
        lists = {k: hosts for k, hosts in content["cluster"].items() if hosts}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        _refuse(f"malformed ({error!r})", text)
    for name in (kind, *lists):
        rule = f"TF_CONFIG has tasks of type {name!r}, but tasks are chief or worker"
        advice = "There are no parameter servers; the workers evaluate by themselves"
        require(name in _KINDS, rule, advice)
    if not all(isinstance(hosts, list) for hosts in lists.values()):
        _refuse("the addresses of each task type must be a list", text)
    places = [(k, i) for k in _KINDS for i in range(len(lists.get(k, [])))]
    if (kind, index) not in places:
        _refuse(f"the cluster has no {kind} {index}", text)
    members = [str(lists[k][i]) for k, i in places]
    return addresses.check(members, "TF_CONFIG"), places.index((kind, index))


def _refuse(problem, text) -> NoReturn:
    raise ValueError(
        f"TF_CONFIG: {problem}. Expected {{"
        '"cluster": {"worker": ["host:port", ...]}, '
        f'"task": {{"type": "worker", "index": 0}}}}. Received: {text}'
    ) from None


def _from_slurm(first_port, environ):
    """Returns (addresses, this process's index), using TensorFlow's Slurm resolver.

    The resolver sorts the nodes by name, but Slurm may number the tasks in a different
    order. Therefore, this worker's index is found from its node and its local ID.
    """
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=first_port,
        # By default, the resolver divides by the number of GPUs, which may be 0, and
        # overwrites CUDA_VISIBLE_DEVICES, which Slurm sets.
        gpus_per_node=int(environ["SLURM_STEP_NUM_TASKS"]),
        gpus_per_task=1,
        auto_set_gpu=False,
    )
    members = addresses.check(resolver.cluster_spec().as_dict()["worker"], "Slurm")
    port = first_port + int(environ["SLURM_LOCALID"])
    own = addresses.join(environ["SLURMD_NODENAME"].lower(), port)
    rule = f"This worker, {own}, is not in the Slurm step"
    require(own in members, rule, workers=", ".join(members))
    return members, members.index(own)


def worker_addresses(options: Any) -> tuple[str, ...]:
    """Returns "host:port" of all workers in cluster_node_ips, machine by machine.

    Args:
        options: the option group `cluster`.

    Raises:
        ValueError: an entry is malformed, or two workers have the same address.
    """
    members = [
        addresses.join(host, (port or _first_port(options)) + i)
        for host, port in _machines(options)
        for i in range(options.num_workers)
    ]
    return addresses.check(members, "cluster_node_ips")


def _first_port(options):
    return options.node_port or DEFAULT_PORT


def _machines(options):
    """Returns (host, port or None) of each machine."""
    return [addresses.split(ip, "cluster_node_ips") for ip in options.cluster_node_ips]


def _own_index(options, environ):
    """Returns this machine's index in cluster_node_ips, or None if it is unknown.

    The index comes from node_ip, task_index or the index of the Kubernetes pod.
    """
    machines, index, source = _machines(options), options.task_index, "task_index"
    if options.node_ip:
        found = _find(options.node_ip, machines)
        rule = f"node_ip={options.node_ip} has index {found} in cluster_node_ips"
        require(index in (None, found), rule, "Set only one of them", task_index=index)
        return found
    if index is None and len(machines) == 1:
        return 0
    if index is None and _POD_INDEX in environ:
        index, source = int(environ[_POD_INDEX]), _POD_INDEX
    rule = f"cluster_node_ips has {len(machines)} entries, counted from 0"
    require(index is None or index < len(machines), rule, **{source: index})
    return index


def _find(node_ip, machines):
    """Returns the index of the machine that `node_ip` names."""
    host, port = addresses.split(node_ip, "node_ip")
    named = [i for i, (h, p) in enumerate(machines) if h == host and port in (None, p)]
    rule = f"node_ip={node_ip} must match one entry of cluster_node_ips"
    advice = "Write it as in that list, with its port if the host has several entries"
    require(len(named) == 1, rule, advice, matches=len(named))
    return named[0]
