"""A worker of test_group_processes.py: joins, and then does what its role says.

The first argument is a JSON dict: addresses, index, options of Group, role.
It prints what it has to say and ends with 3 when the workers do not come together.
"""

import json
import sys
import time

from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.group import Group, JoinError, WorkerLostError

NOT_JOINED = 3


def meet(group):
    group.leave()


def hang(group):
    time.sleep(1000)


def wait(group):
    group.gather("what never comes", group.index)


def fail(group):
    print(f"verdict: {group.fail('the disk is full')}")
    sys.exit(5)


def main():
    given = json.loads(sys.argv[1])
    cluster = Cluster(tuple(given["addresses"]), given["index"], "test")
    try:
        group = Group(cluster, **given["options"])
        group.report_activity("step 7")
        group.gather("ready", None)
        print("ready", flush=True)
        globals()[given["role"]](group)
    except JoinError as error:
        print(f"JoinError: {error}")
        sys.exit(NOT_JOINED)
    except WorkerLostError as error:
        print(f"WorkerLostError: {error}")
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
