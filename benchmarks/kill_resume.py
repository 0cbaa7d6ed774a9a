"""Trainings killed with SIGKILL at random moments, resumed, and compared.

Every run is killed once at least, resumed to its end, and compared bit for bit with
trainings that were left alone. The last line printed is one JSON object;
benchmarks/README.md says what its figures mean.

    python -m benchmarks.kill_resume --runs=100
"""

from benchmarks import killed_run, many_runs, options, processes
from plsc_tf.flags.option import option


class KillCase(many_runs.Trainings):
    """How many trainings, of which size, and how they are started."""

    num_replicas: int = option(2, "replicas", lower=1)
    most_kills: int = option(3, "maximum number of kills per run", lower=1)
    fork: bool = option(
        True,
        "fork a process that has imported TensorFlow for each start; false: a new "
        "interpreter, which takes several seconds longer",
    )

    def start(self, run_dir):
        """Starts a training run, or goes on with it."""
        arguments = [*self.arguments(run_dir), f"--num_replicas={self.num_replicas}"]
        return processes.Training(arguments, run_dir, fork=self.fork)


def main(case):
    """Measures one case and prints it; the exit status is 1 unless all is exact."""
    benchmark = many_runs.Benchmark(case, "kill_resume")
    if case.fork:
        processes.load()
    # As many as will run at a time later on.
    reference = benchmark.unbroken(case.start, max(case.at_a_time(), 2))
    runs = benchmark.run(
        lambda i, run_dir: killed_run.KilledRun(
            case, run_dir, reference, [case.seed, i]
        )
    )
    figures = {
        "runs": case.runs,
        "resumed": sum(run.resumed for run in runs),
        "exact": sum(run.exact for run in runs),
        "kills": sum(run.kills for run in runs),
        "kills_in_saves": sum(run.kills_in_saves for run in runs),
    }
    return benchmark.close(figures, all(run.well for run in runs))


if __name__ == "__main__":
    options.run(main, KillCase, __doc__)
