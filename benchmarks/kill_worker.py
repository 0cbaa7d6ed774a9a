"""Trainings of several workers that lose one at a random moment, and go on.

A launcher starts the workers; one of them, the chief included, is killed with SIGKILL,
or stopped with SIGSTOP. All others must end by themselves within 60 seconds with an
error that names it, and the restarted training must end as one that was left alone, bit
for bit. The last line printed is one JSON object; benchmarks/README.md says what its
figures mean.

    python -m benchmarks.kill_worker --runs=20
"""

import functools
import os

from benchmarks import lost_worker_run, many_runs, options, processes
from plsc_tf.flags.option import option


class LossCase(many_runs.Trainings):
    """How many trainings, of how many workers, and how they lose one."""

    runs: int = option(20, "trainings that lose a worker", lower=1)
    steps_per_epoch: int = option(10, "steps of an epoch", lower=1)
    jobs: int = option(1, "trainings at a time; 0: one per core", lower=0)
    num_workers: tuple[int, ...] = option(
        (3, 2), "workers of a training run, in rotation", lower=2
    )
    stop_share: float = option(
        0.2, "fraction of the runs with SIGSTOP instead of SIGKILL", within="[0, 1]"
    )
    worker_timeout: float = option(
        10.0,
        "seconds of silence after which a worker is lost, in runs with SIGSTOP",
        within="(0, inf)",
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.num_workers:
            raise ValueError("num_workers must contain at least one number.")

    def start(self, run_dir, *, size, stop=False):
        """Starts the launcher of a training run.

        Args:
            run_dir: the training's folder.
            size: number of workers.
            stop: whether a worker will be stopped.
        """
        timeout = [f"--worker_timeout={self.worker_timeout}"] if stop else []
        launching = [
            f"--num_workers={size}",
            "--max_restarts=1",
            f"--log_dir={run_dir}.logs",
        ]
        arguments = [*launching, "--", *self.arguments(run_dir), *timeout]
        return processes.Training(
            arguments, run_dir, fork=False, module="plsc_tf.launch"
        )

    def stops(self, index):
        """Whether a run is one of those with SIGSTOP; they are spread evenly."""
        return int((index + 1) * self.stop_share) > int(index * self.stop_share)


def main(case):
    """Measures one case and prints it; the exit status is 1 unless all went well."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # every worker has one CPU
    benchmark = many_runs.Benchmark(case, "kill_worker")
    references = {
        size: benchmark.unbroken(
            functools.partial(case.start, size=size), 1, f"unbroken_of_{size}"
        )
        for size in sorted(set(case.num_workers))
    }

    def make(i, run_dir):
        size, stop = case.num_workers[i % len(case.num_workers)], case.stops(i)
        return lost_worker_run.LostWorkerRun(
            functools.partial(case.start, size=size, stop=stop),
            run_dir,
            references[size],
            [case.seed, i],
            size=size,
            stop=stop,
        )

    runs = benchmark.run(make)
    return benchmark.close(figures(runs), all(run.well for run in runs))


def figures(runs):
    """What is printed of `LostWorkerRun`s, but for the time."""
    killed = [run for run in runs if not run.stop]
    stopped = [run for run in runs if run.stop]
    return {
        "runs": len(runs),
        "ended_in_time": sum(run.in_time for run in runs),
        "finished_exact": sum(run.exact for run in runs),
        "resumed": sum(run.resumed for run in runs),
        "kills": len(killed),
        "stops": len(stopped),
        "of_the_chief": sum(run.victim == 0 for run in runs),
        "of_others": sum(run.victim != 0 for run in runs),
        "in_saves": sum(run.saving for run in runs),
        "in_steps": sum(run.stepping for run in runs),
        "longest_s_after_kill": _longest(killed),
        "longest_s_after_stop": _longest(stopped),
    }


def _longest(runs):
    return round(max((run.seconds for run in runs if run.seconds), default=0.0), 1)


if __name__ == "__main__":
    options.run(main, LossCase, __doc__)
