"""Trainings killed with SIGKILL at random moments, resumed, and compared.

Every run is killed once at least, resumed to its end, and compared bit for bit with
trainings that were left alone. With --num_workers, each run loses one of its workers,
which is killed or stopped: all others must end by themselves within 60 seconds with an
error that names it, and the launcher starts all again. The last line printed is one
JSON object; benchmarks/README.md says what its figures mean.

    python -m benchmarks.kill_resume --runs=100
    python -m benchmarks.kill_resume --runs=20 --num_workers=3 --jobs=1
    python -m benchmarks.kill_resume --runs=1 \\
        --train_options="--flagfile=hparams/quickstart.cfg --stop_at_step=40 \\
            --save_checkpoints_steps=7"
"""

import concurrent.futures
import functools
import json
import multiprocessing
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time

from benchmarks import killed_run, lost_worker_run, machine, options, processes
from plsc_tf.flags.option import OptionGroup, option

# A network that is traced in seconds: 21 steps, with seven checkpoints and one after
# each epoch.
SMALL = (
    *("--dataset_name=mock", "--model_name=benchmarks.small_network.network"),
    *("--emb_size=16", "--num_classes=23", "--image_shape=3,16,16"),
    *("--num_sample_per_epoch=56", "--global_batch_size=8", "--num_epochs=3"),
    *("--save_checkpoints_steps=3", "--learning_rate=0.05", "--lr_base_batch_size=0"),
)
COMMON = (
    *("--save_losses", "--deterministic", "--norestart", "--nowith_test"),
    *("--val_targets=", "--notensorboard", "--noexport_at_end"),
)
# Seconds of silence after which a stopped worker is lost.
SILENCE_S = 10


class KillCase(OptionGroup):
    """How many trainings, of what, and how they are disturbed."""

    runs: int = option(100, "trainings that are killed and resumed", lower=1)
    most_kills: int = option(
        3, "maximum number of kills per run; a run loses one worker", lower=1
    )
    num_workers: int = option(
        0, "workers, one of which is lost; 0: one process, which is killed", lower=0
    )
    train_options: str = option(
        "", "options of plsc_tf.train, with spaces; empty: a small network"
    )
    jobs: int = option(0, "trainings at a time; 0: one per core", lower=0)
    seed: int = option(0, "random seed of the kills")
    work_dir: str = option(
        "", "folder for the runs; keeps failed ones. Empty: a temporary one"
    )

    @property
    def promises(self):
        """The figures that must hold for every run."""
        lost = ("ended_in_time",) if self.num_workers else ()
        return ("resumed", "exact", *lost)

    def start(self, run_dir, stop=False):
        """Starts a training run, or goes on with it.

        Args:
            run_dir: the training's folder.
            stop: whether a worker will be stopped.
        """
        small = [*SMALL, f"--num_replicas={0 if self.num_workers else 2}"]
        arguments = [*(shlex.split(self.train_options) or small), *COMMON]
        arguments.append(f"--model_save_dir={run_dir}")
        if not self.num_workers:
            return processes.Training(arguments, run_dir)
        launching = [f"--num_workers={self.num_workers}", "--max_restarts=1"]
        launching += [f"--log_dir={run_dir}.logs", "--"]
        timeout = [f"--worker_timeout={SILENCE_S}"] if stop else []
        return processes.Training(
            [*launching, *arguments, *timeout], run_dir, "plsc_tf.launch"
        )


def main(case):
    """Measures one case and prints it; the exit status is 1 unless all is exact."""
    if case.num_workers == 1:
        raise ValueError("num_workers must be 0, or at least 2. Received: 1.")
    # Ends by way of `finally`, so that no process is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    start = time.perf_counter()
    folder = case.work_dir or tempfile.mkdtemp(prefix="kill_resume-")
    os.makedirs(os.path.join(folder, "tmp"), exist_ok=True)
    if case.num_workers:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # every worker has one CPU
    else:
        processes.load()
    jobs = case.jobs or len(os.sched_getaffinity(0))
    # Each run is watched by a process without threads, from which trainings are forked.
    fork = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(jobs, fork) as pool:
        try:
            reference = undisturbed(case, folder, jobs, pool)
            every = play_all(case, folder, reference, pool)
        finally:
            pool.shutdown(cancel_futures=True)
    figures = {name: sum(run[name] for run in every) for name in every[0]}
    if case.num_workers:
        figures["longest_s"] = max(run["longest_s"] for run in every)
    perfect = all(figures[name] == case.runs for name in case.promises)
    if perfect:
        shutil.rmtree(folder)
    else:
        sys.stderr.write(f"What failed stays in {folder}\n")
    seconds = round(time.perf_counter() - start, 1)
    figures = {"runs": case.runs, **figures, "seconds": seconds}
    print(json.dumps(machine.rounded(figures)))
    return int(not perfect)


def undisturbed(case, folder, jobs, pool):
    """The `Outcome` of trainings that nothing disturbs, as many as later run at a time.

    Raises:
        RuntimeError: they differ, so that nothing could be compared with them.
    """
    count = 1 if case.num_workers else max(jobs, 2)
    folders = [os.path.join(folder, f"undisturbed_{i}") for i in range(count)]
    train = functools.partial(killed_run.undisturbed, case)
    first, *others = pool.map(train, folders)
    for other in others:
        if problem := first.differs(other):
            raise RuntimeError(
                f"Two undisturbed trainings differ in {problem}: kept in {folder}"
            )
    sys.stderr.write(
        f"{count} undisturbed: {first.seconds:.1f} s, {len(first.losses)} steps, "
        f"{first.saves} checkpoints{', all equal' if others else ''}\n"
    )
    return first


def play_all(case, folder, reference, pool):
    """The figures of each run; prints a line on each to standard error."""
    start, every, exact = time.perf_counter(), [], 0
    runs = [pool.submit(play, case, folder, reference, i) for i in range(case.runs)]
    for done, run in enumerate(concurrent.futures.as_completed(runs), 1):
        figures, events = run.result()
        every.append(figures)
        exact += figures["exact"]
        rate = done / (time.perf_counter() - start)
        sys.stderr.write(
            f"{done} of {case.runs} runs, {exact} exact, {60 * rate:.1f} runs/min, "
            f"{(case.runs - done) / rate:.0f} s left: {', '.join(events)}\n"
        )
    return every


def play(case, folder, reference, index):
    """The figures and events of a run."""
    kind = lost_worker_run.LostWorkerRun if case.num_workers else killed_run.KilledRun
    run = kind(case, os.path.join(folder, f"run_{index:04d}"), reference, index)
    run.play()
    return run.figures, run.events


if __name__ == "__main__":
    options.run(main, KillCase, __doc__)
