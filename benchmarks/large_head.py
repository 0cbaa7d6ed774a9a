"""As many classes as memory holds: create, train, save, kill, resume.

The first process trains `--steps` steps, saves, goes on for as many, and is killed. The
second resumes, and must find the same losses. The last line printed is one JSON object;
benchmarks/README.md says what its figures mean.

    python -m benchmarks.large_head --num_classes=20000000 --weight_dtype=int8 \\
        --slot_dtype=int8 --num_replicas=1 --logits_mb=100
"""

import contextlib
import dataclasses
import statistics
import sys

from benchmarks import children, machine, options
from plsc_tf.flags.option import option

# Memory that a process may need on top of a tenth of weights and slots.
ALLOWANCE = 0.8e9


class LargeHeadCase(options.StepsCase):
    """A head, and where its checkpoint is written."""

    folder: str = option(
        "", "folder on a disk with room for the checkpoint; empty: the temporary folder"
    )


def main(case):
    """Measures one case and prints it; returns 1 if a promise is broken."""
    held, asked = case.held_bytes, f"num_classes={case.num_classes}"
    machine.check_memory(0.6 * machine.GB + held, f"{asked} and the other options")
    with (
        machine.scratch("large_head", case.folder, 1.1 * held, asked) as folder,
        machine.report(case) as figures,
    ):
        path = f"{folder}/checkpoint"
        first = children.call(train, case, path)
        second = children.call(resume, case, path)
        figures |= {
            "step_s": statistics.median(first["steps_s"] + second["steps_s"]),
            "same_losses": first.pop("losses_after") == second.pop("losses_after"),
            "held_gb": held / machine.GB,
            "limit_gb": (1.1 * held + ALLOWANCE) / machine.GB,
            "peak_rss_gb": max(first["peak_rss_gb"], second["peak_rss_gb"]),
            "first": first,
            "second": second,
        }
    kept = figures["same_losses"] and figures["peak_rss_gb"] <= figures["limit_gb"]
    return int(not kept)


def train(case, path):
    """Creates a head, trains, saves and trains; returns the figures."""
    from plsc_tf.checkpoints import writer
    from plsc_tf.training import state

    watch = machine.Stopwatch()
    steps = create(case, watch)
    steps.run(case.steps)
    with timed(watch, "save"):
        writer.save(path, state.snapshot(steps.model, {}, held=False))
    return figures_after(case, steps, watch)


def resume(case, path):
    """Restores a head of other values, and trains; returns the figures."""
    from plsc_tf.training import state

    watch = machine.Stopwatch()
    steps = create(dataclasses.replace(case, initializer="constant(0.1)"), watch)
    with timed(watch, "restore"):
        state.restore(path, steps.model)
    steps.losses += [None] * case.steps  # The batches go on where they stopped.
    return figures_after(case, steps, watch)


def create(case, watch):
    """The `Steps` of a case."""
    import plsc_tf
    from benchmarks.steps import Steps

    with timed(watch, "create"):
        return Steps(case, plsc_tf.strategy(case.num_replicas), watch)


@contextlib.contextmanager
def timed(watch, name):
    """Times the block, and reports it."""
    with watch.time(name):
        yield
    peak, taken = machine.peak_rss() / machine.GB, watch.seconds[name][-1]
    sys.stderr.write(f"{name}: {taken:.1f} s, at most {peak:.2f} GB so far\n")


def figures_after(case, steps, watch):
    """The figures of a process whose last steps are still to be taken."""
    steps.run(case.steps)
    seconds = {f"{n}_s": times[0] for n, times in watch.seconds.items() if n != "step"}
    return {
        **seconds,
        "steps_s": watch.seconds["step"],
        "losses_after": steps.losses[case.steps :],
        "peak_rss_gb": machine.peak_rss() / machine.GB,
    }


if __name__ == "__main__":
    options.run(main, LargeHeadCase, __doc__)
