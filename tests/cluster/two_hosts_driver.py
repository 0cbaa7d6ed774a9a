"""Trains on two hosts with addresses of their own; prints what came of it, as JSON.

TensorFlow is imported once, but for what the launcher starts; run by test_two_hosts.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys
import time

from benchmarks import processes
from tests.cluster import cluster_driver
from tests.cluster.two_hosts import NotPermittedError, two_hosts

LIMIT_S = 150
JOIN_S = 4
SILENCE_S = 8
# Twelve epochs of five steps, each with a checkpoint at its end.
TRAINING = [
    *cluster_driver.CASE,
    *cluster_driver.MOCK,
    *cluster_driver.NO_TEST,
    "--num_epochs=12",
    f"--worker_timeout={SILENCE_S}",
]
IMPATIENT = f"--join_timeout={JOIN_S}"


def losses(run_dir):
    """[[step, loss]] as they were written, also those of a step that came twice."""
    lines = (run_dir / "losses.txt").read_text().splitlines()
    return [
        [int(step), float.fromhex(loss)] for step, loss in [x.split() for x in lines]
    ]


class Forked:
    """A worker on each host, forked from this process."""

    def __init__(self, hosts, folder, *arguments, each=None):
        (folder / "tmp").mkdir(parents=True)
        self.logs = [folder / f"worker-{i}.log" for i in range(2)]
        self.workers = []
        run_dir = f"--model_save_dir={folder / 'run'}"
        for i, host in enumerate(hosts):
            own = [*TRAINING, run_dir, *arguments, *(each(i) if each else [])]
            with host.entered():
                log = str(self.logs[i].with_suffix(""))
                self.workers.append(processes.Training(own, log))

    def end(self):
        """`{"statuses", "logs", "seconds"}` once both have ended."""
        outcome = _end(self.workers)
        return {**outcome, "logs": [log.read_text() for log in self.logs]}


class Launched:
    """What `python -m plsc_tf.launch` is on each host."""

    def __init__(self, hosts, folder, own, *arguments, node_ip=False):
        folder.mkdir(parents=True)
        self._folder = folder
        self.workers = []
        both = ",".join(host.address for host in hosts)
        run_dir = f"--model_save_dir={folder / 'run'}"
        for i, host in enumerate(hosts):
            own_ip = [f"--node_ip={host.address}"] if node_ip else []
            words = ["-m", "plsc_tf.launch", f"--cluster_node_ips={both}", *own_ip]
            words += [f"--log_dir={folder}", *own, "--"]
            command = [sys.executable, *words, *TRAINING, run_dir, *arguments]
            with open(folder / f"launcher-{i}.log", "w") as log:
                self.workers.append(_Process(host.command(*command), log))

    def log(self, kind, index):
        """What the "launcher" or the "worker" of a host has written."""
        path = self._folder / f"{kind}-{index}.log"
        return path.read_text() if path.exists() else ""

    def wait_for(self, ready):
        """Waits until a function is true, or a launcher has ended."""
        until = time.monotonic() + LIMIT_S
        while not ready() and time.monotonic() < until:
            if any([worker.ended() for worker in self.workers]):
                break
            time.sleep(0.01)

    def end(self):
        """`{"statuses", "logs", "launchers", "seconds"}` once both have ended."""
        outcome = _end(self.workers)
        outcome["logs"] = [self.log("worker", i) for i in range(2)]
        outcome["launchers"] = [self.log("launcher", i) for i in range(2)]
        return outcome


class _Process:
    """A command with the methods of `processes.Training` that are needed here."""

    def __init__(self, command, log):
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    @property
    def status(self):
        return self._process.returncode

    def ended(self):
        return self._process.poll() is not None

    def kill(self):
        self._process.kill()
        self._process.wait()


def _end(workers):
    """Waits until all have ended, by themselves or at the limit."""
    start = time.monotonic()
    try:
        while not all([worker.ended() for worker in workers]):
            if time.monotonic() - start > LIMIT_S:
                break
            time.sleep(0.02)
    finally:
        for worker in workers:
            worker.kill()
    seconds = time.monotonic() - start
    return {"statuses": [worker.status for worker in workers], "seconds": seconds}


def one_process(hosts, folder):
    """One process with two replicas, on the first host."""
    given = [*TRAINING, "--num_replicas=2", f"--model_save_dir={folder / 'run'}"]
    (folder / "tmp").mkdir(parents=True)
    training = processes.Training(given, str(folder / "one"))
    return {**_end([training]), "losses": losses(folder / "run")}


def unbroken(hosts, folder):
    """A worker on each host, told by node_ip which it is."""
    both = f"--cluster_node_ips={','.join(host.address for host in hosts)}"
    outcome = Forked(
        hosts, folder, both, each=lambda i: [f"--node_ip={hosts[i].address}"]
    ).end()
    return {**outcome, "losses": losses(folder / "run")}


def wrong_address(hosts, folder, addresses, each=None):
    """A host is named that there is not."""
    both = f"--cluster_node_ips={','.join(addresses)}"
    return Forked(hosts, folder, both, IMPATIENT, each=each).end()


def no_cable(hosts, folder):
    """The cable is pulled before the start."""
    hosts[1].pull()
    try:
        both = ",".join(host.address for host in hosts)
        return Forked(hosts, folder, f"--cluster_node_ips={both}", IMPATIENT).end()
    finally:
        hosts[1].plug()


def black_hole(hosts, folder):
    """What is sent arrives nowhere."""
    first, second = hosts
    first.misdirect(second)
    second.misdirect(first)
    try:
        both = ",".join(host.address for host in hosts)
        return Forked(hosts, folder, f"--cluster_node_ips={both}", IMPATIENT).end()
    finally:
        first.direct(second)
        second.direct(first)


def launched(hosts, folder):
    """A launcher on each host, and nothing happens."""
    outcome = Launched(hosts, folder, [], node_ip=True).end()
    return {**outcome, "losses": losses(folder / "run")}


def pulled(hosts, folder, break_off, mend, restarts):
    """The hosts lose each other in mid-training; later they find each other."""
    launched = Launched(hosts, folder, [f"--max_restarts={restarts}"])
    try:
        # Two epochs are saved, and steps under way.
        launched.wait_for(lambda: (folder / "run" / "1" / "manifest.json").exists())
        break_off(*hosts)
        broken = time.monotonic()
        told = "Restart 1 of 1." if restarts else " ended with status "
        launched.wait_for(
            lambda: all(told in launched.log("launcher", i) for i in range(2))
        )
        noticed = time.monotonic() - broken
    finally:
        mend(*hosts)
        outcome = launched.end()
    return {**outcome, "losses": losses(folder / "run"), "noticed_s": noticed}


def pull(first, second):
    """Pulls the cable."""
    first.pull()


def plug(first, second):
    """Plugs it in again."""
    first.plug()


def misdirect(first, second):
    """Only what the second host sends is lost."""
    second.misdirect(first)


def direct(first, second):
    """It arrives again."""
    second.direct(first)


SCENARIOS = {
    "one_process": one_process,
    "unbroken": unbroken,
    "no_such_worker": functools.partial(
        wrong_address, addresses=("10.77.0.1", "10.77.0.9")
    ),
    "no_such_chief": functools.partial(
        wrong_address, addresses=("10.77.0.9", "10.77.0.2")
    ),
    "not_its_address": functools.partial(
        wrong_address,
        addresses=("10.77.0.1", "10.77.0.9"),
        each=lambda i: [f"--task_index={i}"],
    ),
    "no_cable": no_cable,
    "black_hole": black_hole,
    "launched": launched,
    "pulled_restarted": functools.partial(
        pulled, break_off=pull, mend=plug, restarts=1
    ),
    "pulled": functools.partial(pulled, break_off=pull, mend=plug, restarts=0),
    "misdirected": functools.partial(
        pulled, break_off=misdirect, mend=direct, restarts=1
    ),
}


def main(folder, names):
    """Runs scenarios in a folder."""
    folder, found = pathlib.Path(folder).absolute(), {}
    try:
        with two_hosts() as hosts:
            processes.load()
            for name in names:
                found[name] = SCENARIOS[name](hosts, folder / name)
    except NotPermittedError as error:
        found = {"not_permitted": str(error)}
    found["cpu_s"] = sum(os.times()[:4])
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
