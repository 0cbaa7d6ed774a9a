"""The processes of a run: they find each other, and end together."""

import atexit
import contextlib
import dataclasses
import faulthandler
import functools
import os
import platform
import uuid

import keras
import numpy as np
import tensorflow as tf
from absl import logging

import plsc_tf
from plsc_tf.options import effects
from plsc_tf.parallel import cluster as clusters
from plsc_tf.parallel import preflight
from plsc_tf.parallel.group import Group, SingleWorker
from plsc_tf.parallel.strategy import cluster_strategy, local_replicas
from plsc_tf.parallel.strategy import strategy as make_strategy
from plsc_tf.storage import files
from plsc_tf.training.ending import Votes

# What may differ from worker to worker: where it is.
OF_A_PLACE = ("node_ip", "task_index")
# TensorFlow's servers find each other within so long, or the process ends.
SERVERS_S = 45.0


class Membership:
    """The place of this process in its cluster, which all of its runs share.

    TensorFlow's server holds the worker's port until the process ends, and TensorFlow
    configures its collectives once. So a process joins once, and leaves when it ends.

    Attributes:
        strategy: the strategy over all workers; None until the first run sets it.
    """

    def __init__(self):
        self.strategy = None
        self._group = self._terms = self._error = None

    def join(self, cluster, settings):
        """Returns the `Group`: the first call joins it, later ones return the same.

        Args:
            cluster: the `Cluster`.
            settings: the `Settings` of the run.

        Raises:
            RuntimeError: a worker did not come, or is lost: `WorkerLostError`; or an
                earlier run of this process has failed.
            ValueError: the run needs another cluster than the earlier ones.
        """
        given = settings.cluster
        terms = {
            "workers": ",".join(cluster.addresses),
            "index": cluster.index,
            "num_replicas": settings.performance.num_replicas,
            "communication": given.communication,
            "worker_timeout": given.worker_timeout,
        }
        if self._group is not None:
            return self._checked(terms)
        logging.info(
            f"Worker {cluster.index} of {cluster.size} ({cluster.address}, from "
            f"{cluster.source}); waiting up to {given.join_timeout:g} s for the others."
        )
        self._group = Group.join(
            cluster, timeout_s=given.join_timeout, silence_s=given.worker_timeout
        )
        self._terms = terms
        atexit.register(self._group.leave)
        return self._group

    def fail(self, error):
        """Makes later runs of this process fail, because this one did.

        Args:
            error: the exception of the run, which is now to be reported to the others.
        """
        self._error = f"{type(error).__name__}: {error}"
        atexit.unregister(self._group.leave)

    def _checked(self, terms):
        if self._error is not None:
            raise RuntimeError(
                "This process has left its cluster after an error, and TensorFlow can "
                f"join only once in a process. Start the script again. {self._error}"
            )
        if self._group.lost:
            raise self._group.lost
        for name, value in terms.items():
            if value != self._terms[name]:
                raise ValueError(
                    "A process joins one cluster, with the options of its first run. "
                    f"Expected: {name}={self._terms[name]}. Received: {name}={value}."
                )
        return self._group


@dataclasses.dataclass(frozen=True)
class Workers:
    """This process among the workers of a run.

    Attributes:
        group: the `Group` of all workers, or `SingleWorker`.
        strategy: the `tf.distribute.Strategy` over all their devices.
        votes: the `Votes`, None of a process that is alone.
    """

    group: Group | SingleWorker
    strategy: tf.distribute.Strategy
    votes: Votes | None = None

    @property
    def together(self):
        """Whether there are several."""
        return self.group.size > 1

    @property
    def local_strategy(self):
        """The strategy over this process's devices, for work that is not shared."""
        return make_strategy(len(local_replicas(self.strategy)))


@contextlib.contextmanager
def joined(settings):
    """The `Workers` of a run, after all of them have come and fit together.

    An error in the block ends the other workers too, with this one's message, unless
    all have decided to end. A process stays in its cluster after the block, for other
    runs, until it ends.

    Raises:
        RuntimeError: a worker did not come, or is lost: `WorkerLostError`.
        ValueError: the workers differ in what must be equal.
    """
    cluster = clusters.resolve(settings.cluster, os.environ)
    if cluster is None:
        effects.tell(settings, {"cluster": False})
        yield Workers(SingleWorker(), make_strategy(settings.performance.num_replicas))
        return
    member = _membership()
    group = member.join(cluster, settings)
    votes = None
    try:
        compare(group, {"versions": _versions(), "flags": _flags(settings)})
        if member.strategy is None:
            member.strategy = _start_servers(group, cluster, settings)
            timeout_s = settings.cluster.join_timeout
            preflight.try_collectives(member.strategy, group, timeout_s)
        votes = Votes(group)
        yield Workers(group, member.strategy, votes)
    except BaseException as error:
        member.fail(error)
        _end(group, votes, error)
        raise


def by_the_chief(settings, function):
    """Calls a function in the chief, while the other workers wait.

    Args:
        settings: the `Settings`.
        function: takes the strategy over the devices of its process.

    Returns:
        what the function returns; None in the other workers.

    Raises:
        RuntimeError: a worker did not come, or is lost: `WorkerLostError`.
    """
    with joined(settings) as workers:
        result = function(workers.local_strategy) if workers.group.is_chief else None
        workers.group.gather("the chief has finished", None)
        return result


def compare(group, facts):
    """Compares what must be equal on all workers; see `preflight.compare`."""
    preflight.compare(group.gather("facts", facts))


def check_shared(group, folder):
    """Checks that all workers see one folder, into which each writes its rows.

    Raises:
        ValueError: on all workers, if one of them sees another one.
    """
    token = files.join(folder, f".seen-{uuid.uuid4().hex}") if group.is_chief else None
    if token:
        files.make_dirs(folder)
        files.write(token, b"")
    token = group.gather("shared folder", token)[0]
    seen = group.gather("sees it", files.exists(token))
    if group.is_chief:
        files.remove(token)
    if not all(seen):
        blind = ", ".join(str(index) for index, sees in enumerate(seen) if not sees)
        raise ValueError(
            "model_save_dir must be one folder that all workers share, on a network "
            f"disk or HDFS. Worker {blind} does not see what worker 0 writes. "
            f"Received: model_save_dir={folder}"
        )


def _start_servers(group, cluster, settings):
    """TensorFlow's server of each worker, and the strategy over all of them.

    No Python thread runs meanwhile, so a time limit has to come from elsewhere.
    """
    group.gather("before the servers", None)
    group.flush()
    logging.info(
        "TensorFlow's servers start. If nothing follows within "
        f"{SERVERS_S:g} s, another worker is lost."
    )
    faulthandler.dump_traceback_later(SERVERS_S, exit=True)
    try:
        return cluster_strategy(
            cluster,
            settings.performance.num_replicas,
            implementation=settings.cluster.communication,
        )
    finally:
        faulthandler.cancel_dump_traceback_later()


def _end(group, votes, error):
    """Tells the others about an error, or hears from them what is behind it."""
    if votes is not None and votes.ended:
        group.leave()
        return
    lost = group.fail(str(error) or type(error).__name__)
    if lost is not None and lost.index != group.index:
        raise lost from error


def _versions():
    return {
        "plsc_tf": plsc_tf.__version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _flags(settings):
    flags = settings.as_dict()
    return {n: repr(value) for n, value in flags.items() if n not in OF_A_PLACE}


@functools.cache
def _membership():
    """The one `Membership` of the process, as TensorFlow has one server."""
    return Membership()
