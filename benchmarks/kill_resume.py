"""Trainings killed with SIGKILL at random moments, resumed, and compared.

Every run is killed once at least, resumed to its end, and compared bit for bit with
trainings that were left alone. The last line printed is one JSON object;
benchmarks/README.md says what its figures mean.

    python -m benchmarks.kill_resume --runs=100
"""

import dataclasses
import json
import os
import shutil
import signal
import sys
import tempfile
import time

from benchmarks import killed_run, options, processes
from plsc_tf.options import OptionGroup, option

POLL_S = 0.001


@dataclasses.dataclass(frozen=True)
class KillCase(OptionGroup):
    """How many trainings, of which size, and how they are started."""

    runs: int = option(100, "trainings that are killed and resumed", lower=1)
    epochs: int = option(3, "epochs of a training", lower=1)
    steps_per_epoch: int = option(7, "steps of an epoch", lower=1)
    save_steps: int = option(3, "steps between two checkpoints", lower=1)
    num_replicas: int = option(2, "replicas", lower=1)
    most_kills: int = option(3, "kills of a run at most", lower=1)
    jobs: int = option(0, "trainings at a time; 0: as many as cores", lower=0)
    fork: bool = option(
        True,
        "fork a process that has imported TensorFlow for each start; false: a new "
        "interpreter, which takes some seconds more",
    )
    seed: int = option(0, "of the moments of the kills")
    work_dir: str = option(
        "", "folder for the trainings; those that fail stay. Empty: a temporary one"
    )

    def arguments(self, run_dir):
        """The command line of a training, but for its program."""
        return [
            "--dataset_name=mock",
            "--model_name=benchmarks.small_network.network",
            "--emb_size=16",
            "--num_classes=23",
            "--image_shape=3,16,16",
            f"--num_sample_per_epoch={8 * self.steps_per_epoch}",
            "--global_batch_size=8",
            f"--num_replicas={self.num_replicas}",
            f"--num_epochs={self.epochs}",
            f"--save_checkpoints_steps={self.save_steps}",
            "--save_losses",
            "--deterministic",
            "--learning_rate=0.05",
            "--lr_base_batch_size=0",
            "--val_targets=",
            "--notensorboard",
            "--noexport_at_end",
            f"--model_save_dir={run_dir}",
        ]


def main(case):
    """Measures one case and prints it; the exit status is 1 unless all is exact."""
    start = time.perf_counter()
    # Ends by way of `finally`, so that no process is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = case.work_dir or tempfile.mkdtemp(prefix="kill_resume-")
    os.makedirs(os.path.join(folder, "tmp"), exist_ok=True)
    if case.fork:
        processes.load()
    jobs = case.jobs or len(os.sched_getaffinity(0))
    reference = _references(case, folder, jobs)
    runs = [
        killed_run.KilledRun(
            case, os.path.join(folder, f"run_{i:04d}"), reference, [case.seed, i]
        )
        for i in range(case.runs)
    ]
    _drive(runs, jobs, lambda done: _tell(done, case.runs, start))
    figures = {
        "runs": case.runs,
        "resumed": sum(run.resumed for run in runs),
        "exact": sum(run.exact for run in runs),
        "kills": sum(run.kills for run in runs),
        "kills_in_saves": sum(run.kills_in_saves for run in runs),
        "seconds": round(time.perf_counter() - start, 1),
    }
    perfect = figures["resumed"] == figures["exact"] == case.runs
    if perfect:
        shutil.rmtree(folder)
    else:
        sys.stderr.write(f"What failed stays in {folder}\n")
    print(json.dumps(figures))
    return 0 if perfect else 1


def _references(case, folder, jobs):
    """Trainings that nothing disturbs, as many as will run at a time later on.

    Raises:
        RuntimeError: they differ, so that nothing could be compared with them.
    """
    count = max(jobs, 2)
    runs = [
        killed_run.UnbrokenRun(case, os.path.join(folder, f"unbroken_{i}"))
        for i in range(count)
    ]
    _drive(runs, jobs, lambda _: None)
    first, *others = [run.outcome() for run in runs]
    for other in others:
        if problem := first.differs(other):
            raise RuntimeError(
                f"Two undisturbed trainings differ in {problem}: kept in {folder}"
            )
    sys.stderr.write(
        f"{count} undisturbed trainings: {first.seconds:.1f} s each, "
        f"{len(first.losses)} steps, {first.saves} checkpoints, all equal\n"
    )
    return first


def _drive(runs, jobs, tell):
    """Takes runs to their ends, `jobs` at a time; leaves no process behind."""
    waiting, active, done = list(reversed(runs)), [], []
    try:
        while waiting or active:
            while waiting and len(active) < jobs:
                active.append(waiting.pop())
                active[-1].start()
            time.sleep(POLL_S)
            for run in list(active):
                if run.poll():
                    active.remove(run)
                    done.append(run)
                    tell(done)
    finally:
        for run in active:
            run.training.kill()


def _tell(done, total, start):
    """A line of progress on the standard error."""
    seconds = time.perf_counter() - start
    run, rate = done[-1], len(done) / seconds
    exact = sum(run.exact for run in done)
    left = (total - len(done)) / rate
    sys.stderr.write(
        f"{len(done)} of {total} runs, {exact} exact, {60 * rate:.1f} runs/min, "
        f"{left:.0f} s left: {run.told()}\n"
    )


if __name__ == "__main__":
    try:
        sys.exit(main(options.parse(KillCase, __doc__)))
    except (ValueError, OSError, RuntimeError) as error:
        sys.exit(f"benchmarks.kill_resume: {error}")
