"""A worker of test_watchdog.py whose training makes no progress.

Arguments: addresses, index, what it does while it stalls.
"""

import sys
import time

from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.group import Group
from plsc_tf.training.watchdog import Watchdog


def main():
    addresses, index, activity = sys.argv[1:]
    cluster = Cluster(tuple(addresses.split(",")), int(index), "test")
    detector = Watchdog(3, Group(cluster, timeout_s=30, grace_s=1))
    detector.start()
    detector.begin("reading the batch of step 8")
    if activity != "reading":
        time.sleep(0.1)
        detector.begin(activity)
    time.sleep(1000)


if __name__ == "__main__":
    main()
