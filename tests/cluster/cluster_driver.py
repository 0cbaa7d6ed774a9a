"""Trains in clusters of forked processes and prints what came of it, as JSON.

TensorFlow is imported once; run by test_cluster_training.
"""

import importlib
import json
import os
import pathlib
import shutil
import signal
import sys
import time

from benchmarks import processes
from plsc_tf.parallel.addresses import free_addresses
from tests.seeds.plsc_folder import make_train_data

STEPS = 15
CASE = [
    "--model_name=tests.cluster.plain_network.network",
    "--emb_size=16",
    "--image_shape=3,16,16",
    "--global_batch_size=10",
    "--num_epochs=3",
    "--save_losses",
    "--deterministic",
    "--learning_rate=0.001",
    "--scale=16",
    "--lr_base_batch_size=0",
    "--notensorboard",
    "--noexport_at_end",
]
# 46 pictures make five steps, the last one of 6 of them.
MOCK = [
    "--dataset_name=mock",
    "--num_classes=11",
    "--num_sample_per_epoch=46",
    "--val_targets=mock",
]
NO_TEST = ["--nowith_test"]


class Cluster:
    """Workers that were started; `end` waits for them."""

    def __init__(self, folder, count, arguments, *, each=None):
        self.folder = pathlib.Path(folder).absolute()
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        places = free_addresses(count)
        self.logs = [self.folder / f"worker-{i}.log" for i in range(count)]
        self.workers, here, self.listening = [], os.getcwd(), set()
        self.ports = [f":{int(place.rpartition(':')[2]):04X}" for place in places]
        for i in range(count):
            own = [*CASE, *arguments, *(each(i) if each else [])]
            if count > 1:
                own += [f"--cluster_node_ips={','.join(places)}", f"--task_index={i}"]
            cwd = self.folder / f"cwd-{i}"
            os.chdir(cwd if cwd.exists() else here)
            log = self.logs[i].with_suffix("")
            self.workers.append(processes.Training(own, str(log)))
        os.chdir(here)

    def wait_for(self, worker, text, limit_s=120):
        """Waits until a worker's log has a text."""
        until = time.monotonic() + limit_s
        log = self.logs[worker]
        while not log.exists() or text not in log.read_text():
            if time.monotonic() > until or self.workers[worker].ended():
                break
            time.sleep(0.01)

    def end(self):
        """`{"statuses", "logs"}` once all have ended."""
        while not all([worker.ended() for worker in self.workers]):
            time.sleep(0.02)
            for table in ("/proc/net/tcp", "/proc/net/tcp6"):
                rows = [row.split() for row in pathlib.Path(table).open()]
                listeners = [row[1] for row in rows if row[3] == "0A"]  # LISTEN
                own = [one for one in listeners if one[-5:] in self.ports]
                self.listening.update(one[:-5] for one in own)
        return {
            "listening": sorted(self.listening),
            "statuses": [worker.status for worker in self.workers],
            "logs": [log.read_text()[-4000:] for log in self.logs],
        }


def train(folder, run_dir, count, *arguments, **options):
    """Trains on so many workers, or on one process."""
    arguments = [f"--model_save_dir={run_dir}", *arguments]
    return Cluster(folder, count, arguments, **options).end()


def losses(run_dir):
    """`{step: loss}` of a run."""
    lines = (pathlib.Path(run_dir) / "losses.txt").read_text().splitlines()
    return {step: float.fromhex(loss) for step, loss in map(str.split, lines)}


def unbroken(folder):
    """One process with one replica, one with two, and two workers."""
    found = {}
    for name, count, replicas in (("one", 1, 1), ("two", 1, 2), ("workers", 2, 0)):
        run_dir = folder / name
        options = [*MOCK, f"--num_replicas={replicas}", f"--eval_every_n_steps={STEPS}"]
        options += NO_TEST if name == "one" else []
        outcome = train(folder / f"{name}-logs", run_dir, count, *options)
        outcome["losses"] = losses(run_dir)
        outcome["results"] = json.loads((run_dir / "results.json").read_text())
        found[name] = outcome
    return found


def elastic(folder):
    """One run that continues on another number of workers."""
    outcomes = []
    for turn, (count, stop) in enumerate(((1, 5), (3, STEPS))):
        words = [*MOCK, *NO_TEST, f"--stop_at_step={stop}"]
        outcomes.append(train(folder / f"logs-{turn}", folder / "run", count, *words))
    statuses = [status for outcome in outcomes for status in outcome["statuses"]]
    names = sorted(path.name for path in (folder / "run").iterdir())
    found = {"statuses": statuses, "names": names, "logs": outcomes[-1]["logs"]}
    return found | {"losses": losses(folder / "run")}


def terminated(folder):
    """SIGTERM to one worker; then the run goes on."""
    run_dir = folder / "run"
    arguments = [*MOCK, *NO_TEST, f"--model_save_dir={run_dir}"]
    slow = ["--log_loss_every_n_iters=1", "--num_epochs=3"]
    cluster = Cluster(folder / "logs", 2, [*arguments, *slow])
    cluster.wait_for(1, "step 3/")
    os.kill(cluster.workers[1].pid, signal.SIGTERM)
    outcome = cluster.end()
    outcome["steps_before"] = len(losses(run_dir))
    outcome["resumed"] = Cluster(folder / "logs-2", 2, arguments).end()["statuses"]
    outcome["losses"] = losses(run_dir)
    return outcome


def unequal_flags(folder):
    return train(
        folder, folder / "run", 2, *MOCK, each=lambda i: [f"--learning_rate={i + 1}"]
    )


LABELS = [number % 5 for number in range(46)]
LISTED = ["--dataset_name=image_list", "--num_classes=5", "--dataset_dir=train_data"]


def unequal_data(folder):
    """Relative paths, and another folder for each worker."""
    for i in range(2):
        make_train_data(folder / "logs" / f"cwd-{i}", LABELS)
    labels = folder / "logs" / "cwd-1" / "train_data" / "label.txt"
    labels.write_text("".join(labels.read_text().splitlines(keepends=True)[:-1]))
    return train(folder / "logs", folder / "run", 2, *LISTED, *NO_TEST)


def unshared_folder(folder):
    for i in range(2):
        (folder / f"cwd-{i}").mkdir(parents=True)
    return train(folder, "run", 2, *MOCK, *NO_TEST)


def bad_picture(folder):
    """A picture of the second worker's share is damaged; then it is put right."""
    data, run_dir = folder / "train_data", folder / "run"
    make_train_data(folder, LABELS)
    listed = [*LISTED[:-1], f"--dataset_dir={data}", *NO_TEST]
    train(folder / "whole-logs", folder / "whole", 1, *listed, "--num_replicas=2")
    outcome = {"expected": losses(folder / "whole"), "found": []}
    # Damaged one after the other, until the share of the second worker has one.
    for i, path in enumerate(sorted((data / "images").iterdir())):
        good = path.read_bytes()
        path.write_bytes(good[:60])
        shutil.rmtree(run_dir, ignore_errors=True)
        broken = train(folder / f"logs-{i}", run_dir, 2, *listed)
        path.write_bytes(good)
        if broken["statuses"] == [76, 1]:
            break
    outcome.update(broken, damaged=path.name, steps_before=len(losses(run_dir)))
    outcome["resumed"] = train(folder / "logs", run_dir, 2, *listed)["statuses"]
    outcome["losses"] = losses(run_dir)
    return outcome


def not_finite(folder):
    outcome = train(folder, folder / "run", 2, *MOCK, *NO_TEST, "--learning_rate=1e30")
    outcome["names"] = sorted(p.name for p in (folder / "run" / "nonfinite").iterdir())
    return outcome


SCENARIOS = [unbroken, elastic, terminated, unequal_flags, unequal_data]
SCENARIOS += [unshared_folder, bad_picture, not_finite]


def main(folder):
    """Runs all scenarios, each in a folder of its own."""
    processes.load()
    importlib.import_module("matplotlib.figure")  # for all workers
    root = pathlib.Path(folder).absolute()
    found = {run.__name__: run(root / run.__name__) for run in SCENARIOS}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
