"""Clusters whose run is on HDFS, for a driver of their own.

The workers are forked from it after it has imported TensorFlow and before it touches
HDFS, which it never does: a Java machine does not survive a fork.
"""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import sys
import time
from unittest import mock

from hdfs_trainings import Recorder, meet, no_waits

from plsc_tf import train
from plsc_tf.checkpoints import writer
from plsc_tf.jobs import train as run
from plsc_tf.jobs import workers as together
from plsc_tf.options import cli
from plsc_tf.parallel.addresses import free_ports
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.group import Group

LIMIT_S = 150
OPTIONS = {
    "dataset_name": "mock",
    "num_classes": 11,
    "num_sample_per_epoch": 46,
    "image_shape": "3,16,16",
    "model_name": "tests.cluster.plain_network.network",
    "emb_size": 16,
    "global_batch_size": 10,
    "num_epochs": 4,
    "learning_rate": 0.001,
    "lr_base_batch_size": 0,
    "scale": 16,
    "save_checkpoints_epochs": 0,
    "deterministic": True,
    "tensorboard": False,
    "with_test": False,
    "export_at_end": False,
    "join_timeout": 60,
}


class Teller(Recorder):
    """Writes each loss to a file as it comes.

    Args:
        path: the file.
        pause_s: how long to wait after each step, as a larger model would need.
    """

    def __init__(self, path, pause_s):
        super().__init__()
        self._path = pathlib.Path(path)
        self._pause_s = pause_s

    def on_train_batch_end(self, batch, logs=None):
        """Writes the newest loss."""
        super().on_train_batch_end(batch, logs)
        step = self.model.trainer.position.global_step
        with self._path.open("a") as file:
            file.write(f"{step} {self.losses[str(step)]}\n")
        time.sleep(self._pause_s)


def train_together(folder, count, options, broken=None, pause_s=0.0):
    """Trains on so many workers, or on one process, until all have ended.

    Args:
        folder: local one, for logs.
        count: of workers.
        options: of the training, beside `OPTIONS`.
        broken: [worker, step, made, awaited]: in the middle of a file of the first
            save from that step on, it makes the one and waits for the other; without
            these it kills itself.
        pause_s: seconds between two steps.

    Returns:
        `{"statuses", "logs", "losses": [{step: loss}]}`, of each worker.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    places, workers = [], []
    if count > 1:
        places = [f"--cluster_node_ips={','.join(_addresses(count))}"]
    for i in range(count):
        given = {**OPTIONS, **options, **({"task_index": i} if places else {})}
        arguments = [f"--{key}={value}" for key, value in given.items()]
        mine = broken[1:] if broken and broken[0] == i else None
        target = (arguments + places, str(folder / f"worker-{i}"), mine, pause_s)
        context = multiprocessing.get_context("fork")
        workers.append(context.Process(target=_work, args=target))
        workers[-1].start()
    try:
        until = time.monotonic() + LIMIT_S
        for worker in workers:
            worker.join(max(until - time.monotonic(), 0))
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    paths = [folder / f"worker-{i}" for i in range(count)]
    return {
        "statuses": [worker.exitcode for worker in workers],
        "logs": [path.with_suffix(".log").read_text() for path in paths],
        "losses": [_losses(path.with_suffix(".losses")) for path in paths],
    }


MOUNTS = """<configuration>
<property><name>fs.defaultFS</name><value>viewfs://all/</value></property>
<property><name>fs.viewfs.mounttable.all.link./run</name><value>{}</value></property>
</configuration>
"""


def see_each_other(folder, targets):
    """Joins as many workers, for each of which viewfs://all/run is another folder.

    Args:
        folder: local one, for logs and configurations.
        targets: that folder of each worker.

    Returns:
        what the look for a shared folder has said on each worker, "" for nothing.
    """
    addresses = tuple(_addresses(len(targets)))
    context = multiprocessing.get_context("fork")
    answers, workers = [context.Queue() for _ in targets], []
    for i, target in enumerate(targets):
        given = (Cluster(addresses, i, "test"), pathlib.Path(folder) / f"{i}", target)
        workers.append(context.Process(target=_see, args=(*given, answers[i])))
        workers[-1].start()
    try:
        return [answer.get(timeout=60) for answer in answers]
    finally:
        for worker in workers:
            worker.join(10)
            worker.kill()


def _see(cluster, folder, target, answer):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "core-site.xml").write_text(MOUNTS.format(target))
    os.environ["CLASSPATH"] = f"{folder}:{os.environ['CLASSPATH']}"
    # For viewfs the user must be known here, by his group.
    del os.environ["HADOOP_USER_NAME"]
    group = Group.join(cluster, timeout_s=60)
    try:
        together.check_shared(group, "viewfs://all/run")
        answer.put("")
        group.leave()
    except (OSError, RuntimeError, ValueError) as error:
        answer.put(str(error))
        group.fail(str(error))


def _losses(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split() for line in lines)


def _addresses(count):
    return [f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", count)]


def _work(arguments, path, broken, pause_s):
    """What `python -m plsc_tf.train` does, in a child."""
    log = os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.stdout = sys.stderr
    recorder = Teller(f"{path}.losses", pause_s)
    recorder.listen()
    with _breaking(recorder, broken), no_waits():
        cli.main(lambda given: run.train(given, recorder), train.GROUPS, argv=arguments)


def _breaking(recorder, broken):
    if broken is None:
        return contextlib.nullcontext()
    step, *meeting = broken
    real = writer.npy_chunks

    def pieces(array, low, high):
        for number, piece in enumerate(real(array, low, high)):
            if number and recorder.model.trainer.position.global_step >= step:
                if not meeting:
                    os.kill(os.getpid(), signal.SIGKILL)
                meet(*meeting)
            yield piece

    return mock.patch.object(writer, "npy_chunks", pieces)
