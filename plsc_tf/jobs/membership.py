"""This process as a worker of its cluster, from its first run until it ends."""

import atexit
import functools

from absl import logging

from plsc_tf.parallel.group import Group


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
            self._check(terms)
            return self._group
        logging.info(
            "Worker %d of %d (%s), said by %s; waiting for the others up to %g s.",
            cluster.index,
            cluster.size,
            cluster.address,
            cluster.source,
            given.join_timeout,
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

    def _check(self, terms):
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
                    f"Expected: {name}={self._terms[name]}. Received: {name}={value}; "
                    "use a script of its own for that."
                )


@functools.cache
def of_this_process():
    """Returns the one `Membership` of the process, as TensorFlow has one server."""
    return Membership()
