"""A worker of test_preflight.py: tries collectives that work, then ones that fail.

Arguments: addresses, index. Prints a JSON line for each attempt.
"""

import json
import os
import sys

from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.group import Group, WorkerLostError


class Broken:
    """A strategy that fails on this worker only."""

    num_replicas_in_sync = 2

    def run(self, function):
        raise OSError("a broken card")


def say(text):
    print(json.dumps(text), flush=True)


def main():
    cluster = Cluster(tuple(sys.argv[1].split(",")), int(sys.argv[2]), "test")
    group = Group(cluster, timeout_s=60)
    os.environ["TF_CONFIG"] = cluster.tf_config()

    import tensorflow as tf

    from plsc_tf.parallel import preflight

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    preflight.try_collectives(strategy, group, 60)
    say("they work")
    try:
        preflight.try_collectives(strategy if group.is_chief else Broken(), group, 2)
    except RuntimeError as error:
        say(f"RuntimeError: {error}")
    preflight.PATIENCE_S = 0.5
    try:
        if group.is_chief:
            preflight.try_collectives(strategy, group, 2)
        else:
            group.gather("something else", None, timeout_s=20)
    except (TimeoutError, WorkerLostError) as error:  # the chief ends first
        say(f"{type(error).__name__}: {error}")
    # A regular exit would wait forever for a collective that hangs.
    os._exit(0)


if __name__ == "__main__":
    main()
