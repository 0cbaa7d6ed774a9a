"""Connects the worker processes of a run, and makes them end together."""

import atexit
import contextlib
import dataclasses
import faulthandler
import ipaddress
import os
import uuid

import tensorflow as tf
from absl import logging

from plsc_tf import private_apis, versions
from plsc_tf.options import effects
from plsc_tf.parallel import bind_guard, cluster as clusters, gpus, joining, preflight
from plsc_tf.parallel.group import Group, SingleWorker
from plsc_tf.parallel.strategy import (
    cluster_strategy,
    device_kind,
    local_replicas,
    strategy as make_strategy,
)
from plsc_tf.requirements import require
from plsc_tf.storage import files
from plsc_tf.training.ending import Votes

# Options that may differ between workers, because they state a worker's location.
LOCATION_OPTIONS = ("node_ip", "task_index")
# If TensorFlow's servers do not connect within this time, the process ends.
SERVERS_S = 45.0


class Membership:
    """This process's membership in a cluster, shared by all runs of the process.

    TensorFlow's server holds the worker's port until the process ends, and TensorFlow
    can configure its collectives only once. Therefore a process joins a cluster only
    once and leaves it when the process ends.

    Attributes:
        strategy: the strategy over all workers; None until the first run sets it.
    """

    def __init__(self):
        self.strategy = None
        self._group = self._terms = self._error = None

    def join(self, cluster, settings):
        """Joins the `Group` on the first call; later calls return the same group.

        Args:
            cluster: the `Cluster`.
            settings: the `Settings` of the run.

        Raises:
            RuntimeError: a worker did not join, a worker was lost (`WorkerLostError`),
                or an earlier run of this process failed.
            ValueError: the run's cluster differs from that of an earlier run.
        """
        given = settings.cluster
        terms = (
            f"worker {cluster.index} of {','.join(cluster.addresses)} with "
            f"num_replicas={settings.performance.num_replicas}, communication="
            f"{given.communication} and worker_timeout={given.worker_timeout:g}"
        )
        if self._group is not None:
            if self._error is not None:
                raise RuntimeError(
                    "This process has left its cluster after an error, and it cannot "
                    f"join again. Restart the script. The error was {self._error}"
                )
            if self._group.lost:
                raise self._group.lost
            rule = "All runs of a process must use the first run's cluster: "
            require(terms == self._terms, f"{rule}{self._terms}", cluster=terms)
            return self._group
        logging.info(
            f"Worker {cluster.index} of {cluster.size} ({cluster.address}, from "
            f"{cluster.source}): waiting up to {given.join_timeout:g} s for the others."
        )
        if not cluster.secret:
            logging.warning(
                "The workers have no shared secret: anyone who can connect to "
                f"{cluster.addresses[0]} can end this training. Set "
                "cluster_secret_file to a file that all workers share."
            )
        self._group = Group(
            cluster, timeout_s=given.join_timeout, silence_s=given.worker_timeout
        )
        self._terms = terms
        atexit.register(self._group.leave)
        return self._group

    def fail(self, error):
        """Makes later runs of this process fail after this run has failed.

        Also cancels the regular leave at exit; the caller reports the error to the
        other workers instead.

        Args:
            error: the exception that ended the run.
        """
        self._error = f"{type(error).__name__}: {error}"
        atexit.unregister(self._group.leave)


# The process's only membership; a process has one TensorFlow server.
_MEMBERSHIP = Membership()


@dataclasses.dataclass(frozen=True)
class Workers:
    """The workers of a run, as this process sees them.

    Attributes:
        group: the `Group` of all workers, or `SingleWorker`.
        strategy: the `tf.distribute.Strategy` over the devices of all workers.
        votes: the `Votes`; None if there is no cluster.
    """

    group: Group | SingleWorker
    strategy: tf.distribute.Strategy
    votes: Votes | None = None

    @property
    def local_strategy(self):
        """A new strategy over this process's devices, for work that is not shared."""
        return make_strategy(len(local_replicas(self.strategy)))


@contextlib.contextmanager
def joined(settings):
    """Yields the run's `Workers` once all have joined and their options are compared.

    An error in the block ends the other workers too, with this worker's message, unless
    all workers have already voted to end. After the block, the process stays in its
    cluster for later runs.

    Raises:
        RuntimeError: a worker did not join, or was lost (`WorkerLostError`).
        ValueError: the workers differ in versions or options that must be equal.
    """
    cluster = clusters.resolve(settings.cluster, os.environ)
    if cluster is None:
        strategy = make_strategy(settings.performance.num_replicas)
        on_gpus = device_kind(strategy) == "GPU"
        facts = {"cluster": False, "alone": True, "gpus": on_gpus}
        effects.log_unused(settings, facts)
        if private_apis.uses_nccl(strategy):
            _try_collectives(settings, strategy, SingleWorker())
        yield Workers(SingleWorker(), strategy)
        return
    group = _MEMBERSHIP.join(cluster, settings)
    votes = None
    try:
        facts = {f"versions.{name}": v for name, v in versions.installed().items()}
        flags = settings.as_dict() | dict.fromkeys(LOCATION_OPTIONS)
        facts |= {f"flags.{name}": repr(value) for name, value in flags.items()}
        preflight.compare(group.gather("facts", facts))
        if _MEMBERSHIP.strategy is None:
            _MEMBERSHIP.strategy = _start_servers(group, cluster, settings)
            _try_collectives(settings, _MEMBERSHIP.strategy, group)
        votes = Votes(group)
        yield Workers(group, _MEMBERSHIP.strategy, votes)
    except BaseException as error:
        _MEMBERSHIP.fail(error)
        if votes is not None and votes.ended:
            group.leave()
            raise
        lost = group.fail(str(error) or type(error).__name__)
        if lost is not None and lost.index != group.index:
            raise lost from error
        raise


def require_one_process(settings, what, advice=""):
    """Raises ValueError if the settings or the environment describe a cluster.

    Args:
        settings: the `Settings`.
        what: the command or option, for the message.
        advice: last sentence of the message.
    """
    alone = clusters.resolve(settings.cluster, os.environ) is None
    rule = f"{what} must run in one process, not in a cluster (of TF_CONFIG, "
    rule += "cluster_node_ips or Slurm)"
    leave = "Set --cluster_resolver=none, and do not use the launcher"
    require(alone, rule, f"{leave}. {advice}".rstrip(" ."))


def check_shared(group, folder):
    """Checks that all workers share a folder; each writes its rows of the head there.

    Raises:
        ValueError: a worker does not see the chief's file; raised on all workers.
    """
    token = files.join(folder, f".seen-{uuid.uuid4().hex}") if group.is_chief else None
    if token:
        files.make_dirs(folder)
        files.write(token, b"")
    token = group.gather("shared folder", token)[0]
    seen = group.gather("sees it", files.exists(token))
    if group.is_chief:
        files.remove(token)
    blind = ", ".join(str(index) for index, sees in enumerate(seen) if not sees)
    rule = "All workers must share model_save_dir, on a network disk or HDFS. Worker "
    rule += f"{blind} does not see the files of worker 0"
    require(all(seen), rule, folder=folder)


def _start_servers(group, cluster, settings):
    """Starts this worker's TensorFlow server; returns the strategy over all workers.

    No Python thread runs during the start, so `faulthandler` enforces the time limit.
    """
    wanted, num_replicas = settings.cluster, settings.performance.num_replicas
    num_gpus = gpus.to_use(num_replicas, required=wanted.communication == "nccl")
    # Without GPUs, num_replicas above 1 is not an error, so that a flag file for one
    # process also works in a cluster.
    effects.log_unused(settings, {"alone": False, "gpus": num_gpus > 0})
    used = group.gather("before the servers", num_gpus)
    implementation = gpus.implementation(wanted.communication, used)
    _restrict_server(cluster)
    logging.info(
        f"Starting TensorFlow's servers. If this process ends after {SERVERS_S:g} s, "
        "they cannot reach a worker."
    )
    faulthandler.dump_traceback_later(SERVERS_S, exit=True)
    try:
        return cluster_strategy(cluster, num_gpus, implementation=implementation)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _restrict_server(cluster):
    """Makes TensorFlow's server listen on this worker's address only, if possible."""
    _, (host, port, *_) = joining.own_place(cluster)
    try:
        if not host:
            raise OSError(f"this machine resolves {cluster.address} to itself")
        bind_guard.install(host, port)
    except OSError as error:
        logging.warning(
            f"TensorFlow's server listens on port {port} of all network interfaces, "
            f"not only on {cluster.address} ({error})."
        )
        host = ""
    if not host or not ipaddress.ip_address(host).is_loopback:
        logging.warning(
            f"TensorFlow's server at {cluster.address} has no authentication: anyone "
            "who can connect to it can read and write this user's files. Let only the "
            "workers connect (docs/launch.md)."
        )


def _try_collectives(settings, strategy, group):
    timeout_s, dtype = settings.cluster.join_timeout, settings.cluster.gradient_dtype
    preflight.try_collectives(strategy, group, timeout_s, dtype)
