"""Two hosts, each with its own address and network, train as one."""

import re
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import programs, required
from tests.cluster import cluster_driver
from tests.cluster.cluster_driver import CASE, MOCK, NO_TEST
from tests.cluster.two_hosts import NotPermittedError, two_hosts
from tests.waiting import wait_for

LOST = 76
LIMIT_S = 200
SILENCE_S = 6
# How long a process may hang in a collective, and the rest on a busy machine.
GRACE_S, SLOW_S = 10, 60
# Epochs of five steps, each with a checkpoint at its end.
TRAINING = [*CASE, *MOCK, *NO_TEST, "--num_epochs=6", f"--worker_timeout={SILENCE_S}"]


@pytest.fixture(scope="module")
def hosts():
    """Two joined hosts."""
    try:
        with two_hosts() as both:
            yield both
    except NotPermittedError as error:
        required.skip("NETNS", f"no network namespaces here: {error}")


class Launchers:
    """`python -m plsc_tf.launch` on each host, and its output."""

    def __init__(self, hosts, folder):
        self._folder = folder
        addresses = ",".join(host.address for host in hosts)
        words = [sys.executable, "-m", "plsc_tf.launch", "--max_restarts=1"]
        words += [f"--cluster_node_ips={addresses}", f"--log_dir={folder}"]
        training = [*TRAINING, f"--model_save_dir={folder / 'run'}"]
        self._launchers = []
        for i, host in enumerate(hosts):
            command = host.command(*words, f"--task_index={i}", "--", *training)
            with open(folder / f"launcher-{i}.log", "w") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log)
                self._launchers.append(process)

    def log(self, kind, index):
        """The output of the "launcher" or the "worker" of a host."""
        path = self._folder / f"{kind}-{index}.log"
        return path.read_text() if path.exists() else ""

    def wait_for(self, ready):
        """Waits until a function is true, or a launcher has ended."""
        polls = [launcher.poll for launcher in self._launchers]
        wait_for(lambda: ready() or any(poll() is not None for poll in polls), LIMIT_S)

    def end(self):
        """Returns their exit statuses once both have ended."""
        try:
            return [launcher.wait(LIMIT_S) for launcher in self._launchers]
        finally:
            for launcher in self._launchers:
                launcher.kill()
                launcher.wait()


def test_a_pulled_cable_ends_both_and_the_launchers_go_on(hosts, tmp_path):
    launchers = Launchers(hosts, tmp_path)
    try:
        # Two epochs are saved, and steps under way.
        launchers.wait_for((tmp_path / "run" / "1" / "manifest.json").exists)
        hosts[0].pull()
        broken = time.monotonic()
        launchers.wait_for(
            lambda: all(
                "Restart 1 of 1." in launchers.log("launcher", i) for i in (0, 1)
            )
        )
        noticed_s = time.monotonic() - broken
    finally:
        hosts[0].plug()
        statuses = launchers.end()
    assert statuses == [0, 0], launchers.log("launcher", 0)
    assert noticed_s < SILENCE_S + GRACE_S + SLOW_S
    # One process with two replicas; a step of the hosts may have come twice.
    one = [*TRAINING, "--num_replicas=2", f"--model_save_dir={tmp_path / 'one'}"]
    programs.run("-m", "plsc_tf.train", *one)
    expected = cluster_driver.losses(tmp_path / "one")
    found = [line.split() for line in (tmp_path / "run/losses.txt").open()]
    assert {step for step, _ in found} == set(expected)
    np.testing.assert_allclose(
        [float.fromhex(loss) for _, loss in found],
        [expected[step] for step, _ in found],
        rtol=1e-5,
    )
    for index in (0, 1):
        log = launchers.log("worker", index)
        assert f"Worker {index} of 2 (10.77.0.{index + 1}:6170, " in log
        assert re.search(r"Resuming .*/run/\d+ at epoch", log)
        told = f"ended with status {LOST} (it ended because another worker"
        assert told in launchers.log("launcher", index)
        first = re.split("^==== .*, attempt 2", log, flags=re.M)[0]
        (error,) = re.findall(r"(?:ERROR|plsc_tf: error:) (Worker .*)", first)
        other = rf"Worker {1 - index} \(10\.77\.0\.{2 - index}:6170\)"
        assert re.match(rf"{other}(, the chief,)? was silent for {SILENCE_S} s", error)
