"""As many classes as memory holds: create, train, save, kill, resume.

The first process trains `--steps` steps, saves, goes on for as many, and is killed. The
second resumes, and must find the same losses. The last line printed is one JSON object;
benchmarks/README.md says what its figures mean.

    python -m benchmarks.large_head --num_classes=20000000 --weight_dtype=int8 \\
        --slot_dtype=int8 --num_replicas=1 --logits_mb=100
"""

import dataclasses
import json
import multiprocessing
import statistics
import sys
import time

from benchmarks import head, machine, options
from benchmarks.rounding import rounded
from plsc_tf.flags.option import option

# Memory that a process may need on top of a tenth of weights and slots.
ALLOWANCE = 0.8e9


class LargeHeadCase(options.HeadCase):
    """A head, and where its checkpoint is written."""

    folder: str = option(
        "", "folder on a disk with room for the checkpoint; empty: the temporary folder"
    )


def main(case):
    """Measures one case and prints it; returns 1 if a promise is broken."""
    case = dataclasses.replace(case, products=False)
    head.check_memory(case)
    row = case.emb_size * (
        head.BYTES[case.weight_dtype] + case.slots * head.BYTES[case.slot_dtype]
    )
    held, asked = case.num_classes * row, f"num_classes={case.num_classes}"
    with machine.scratch("large_head", case.folder, 1.1 * held, asked) as folder:
        path = f"{folder}/checkpoint"
        first = in_process(train, case, path)
        second = in_process(resume, case, path)
    limit = 1.1 * held + ALLOWANCE
    peaks = [one["peak_rss_gb"] for one in (first, second)]
    same = first.pop("losses_after")[: case.steps] == second["losses"]
    steps = first["steps_s"] + second["steps_s"]
    figures = {
        "step_s": statistics.median(steps),
        "same_losses": same,
        "held_gb": held / machine.GB,
        "limit_gb": limit / machine.GB,
        "peak_rss_gb": max(peaks),
        "first": first,
        "second": second,
        "parameters": dataclasses.asdict(case),
        "machine": machine.describe(),
    }
    print(json.dumps(rounded(figures)))
    return int(not same or max(peaks) * machine.GB > limit)


def in_process(function, case, path):
    """Runs `function(case, path, send)` in a new process, which is killed at the end.

    Returns:
        the dict that it sends.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=function, args=(case, path, sender.send))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"The process ended with {process.exitcode}.") from None
    finally:
        process.kill()
        process.join()


def train(case, path, send):
    """Creates a head, trains, saves and trains; sends the figures and waits."""
    from plsc_tf.checkpoints import writer
    from plsc_tf.training import state

    timer = Timer()
    steps = make_steps(case)
    figures = {"create_s": timer.lap("created")}
    steps.run(case.steps, timed=True)
    timer.lap("trained")
    writer.save(path, state.snapshot(steps.model, {}, held=False))
    figures["save_s"] = timer.lap("saved")
    steps.run(case.steps, timed=True)
    figures["losses_after"] = steps.losses[case.steps :]
    finish(steps, figures, send)


def resume(case, path, send):
    """Restores a head of other values, and trains; sends the figures and waits."""
    from plsc_tf.training import state

    timer = Timer()
    steps = make_steps(dataclasses.replace(case, initializer="constant(0.1)"))
    figures = {"create_s": timer.lap("created")}
    state.restore(path, steps.model)
    figures["restore_s"] = timer.lap("restored")
    steps.losses += [None] * case.steps  # The batches go on where they stopped.
    steps.run(case.steps, timed=True)
    figures["losses"] = steps.losses[case.steps :]
    finish(steps, figures, send)


def make_steps(case):
    """The `Steps` of a case."""
    import plsc_tf
    from benchmarks.steps import Steps

    return Steps(case, plsc_tf.strategy(case.num_replicas))


def finish(steps, figures, send):
    """Sends the figures, and waits for the end of this process."""
    peak = machine.peak_rss() / machine.GB
    send({**figures, "peak_rss_gb": peak, "steps_s": steps.seconds})
    time.sleep(3600)


class Timer:
    """Prints what was done and how long it took."""

    def __init__(self):
        self._last = time.perf_counter()

    def lap(self, what):
        """Returns the seconds since the last one."""
        now = time.perf_counter()
        taken, self._last = now - self._last, now
        peak = machine.peak_rss() / machine.GB
        sys.stderr.write(f"{what} in {taken:.1f} s, at most {peak:.2f} GB so far\n")
        return taken


if __name__ == "__main__":
    options.run(main, LargeHeadCase, __doc__)
