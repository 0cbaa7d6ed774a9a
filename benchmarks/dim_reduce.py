"""Dimension-reduction training beside what else the same epochs could be used for.

For each seed a stage 1 stops while its rate is high; from its end go on, for equally
many epochs: (reduced) stage 2 with the tutorial's parameters; (reduced_large) stage 2
as its paper has it, with large batches and up to 20 trials; (schedule) the rest of the
schedule, down to 0; (drop) a tenth of the rate; (average) no training, but the mean of
the same snapshots, with batch-norm statistics of one pass over the data (stochastic
weight averaging, Izmailov et al., arXiv:1803.05407); (average_last) the mean of those
of the last epoch; (plain) the same rate. The last line printed is one JSON object.

    python -m benchmarks.dim_reduce --dataset_dir=cifar10 --work_dir=/tmp/dim_reduce
    python -m benchmarks.dim_reduce --flagfile=hparams/dim_reduce_stage1.cfg --seeds=1
"""

import json
import os
import pathlib
import shutil
import statistics
import sys

from benchmarks import children, machine, options
from plsc_tf.flags.option import OptionGroup, option

DONE = "dim_reduce.json"  # figures of a finished run


class ReduceCase(OptionGroup):
    """The recipe that all trainings share, and its budget."""

    flagfile: str = option(
        "hparams/cifar10.cfg", "recipe: data, network, loss, batch; has a test split"
    )
    dataset_dir: str = option("", "folder of the data; empty: the recipe's")
    seeds: int = option(3, "trainings, each with a different seed", lower=1)
    first_seed: int = option(0, "first of the seeds")
    epochs: int = option(9, "epochs of the full schedule", lower=2)
    budget: int = option(2, "last epochs, which stage 1 omits", lower=1)
    snapshot_epochs: int = option(5, "last epochs of stage 1 with snapshots", lower=1)
    snapshots_per_epoch: int = option(8, "snapshots in each of these epochs", lower=1)
    n_component: int = option(32, "dimensions of stage 2", lower=1)
    scope: str = option("all", "weights that stage 2 reduces", choices="backbone all")
    large_batch: int = option(1024, "images per step of reduced_large", lower=1)
    learning_rate: float = option(0.2, "largest rate", lower=0)
    train_options: str = option("", "more options of each training run, with spaces")
    work_dir: str = option("", "folder for the runs; empty: a temporary one")


def main(case):
    """Runs all trainings and prints the table and the figures."""
    runs = {}
    with (
        machine.work_dir("dim_reduce", case.work_dir) as folder,
        machine.report(case) as figures,
    ):
        for seed in range(case.first_seed, case.first_seed + case.seeds):
            for name, found in one_seed(case, seed, folder).items():
                runs.setdefault(name, []).append(found)
        figures |= summary(runs)


def summary(runs):
    """Prints the mean accuracies; returns the figures of all `{name: [figures]}`."""
    speeds = {
        name: statistics.median(run["images_per_second"] for run in runs[name])
        for name in ("plain", "reduced")
    }
    for name, found in runs.items():
        accuracy = [100 * run["accuracy"] for run in found]
        spread = statistics.stdev(accuracy) if len(accuracy) > 1 else 0.0
        print(f"{name:10} {statistics.fmean(accuracy):6.2f} ± {spread:.2f}")
    return {
        "accuracy": {
            n: [run["accuracy"] for run in found] for n, found in runs.items()
        },
        "loss": {n: [run["loss"] for run in found] for n, found in runs.items()},
        "rate": {n: found[0].get("rate") for n, found in runs.items()},
        # Epochs with pauses for checkpoints in between, so not exactly of a step.
        "step_time_ratio": round(speeds["plain"] / speeds["reduced"], 2),
    }


def one_seed(case, seed, folder):
    """All trainings of one seed: `{name: figures}`."""
    first = os.path.join(folder, f"{seed}-stage_1")
    found = {"stage_1": stage_1(case, seed, first)}
    left = found["stage_1"]["rate"]
    going_on = {
        "schedule": {},
        "drop": {"learning_rate": left / 10, "learning_rate_decay_type": "fixed"},
        "plain": {"learning_rate": left, "learning_rate_decay_type": "fixed"},
    }
    for name, changed in going_on.items():
        own = os.path.join(folder, f"{seed}-{name}")
        if not os.path.exists(own):
            left_out = shutil.ignore_patterns("snapshots", DONE, "average-*")
            shutil.copytree(first, own, ignore=left_out)
        options_ = {**schedule(case), **changed, "warmup_epochs": 0}
        if name == "schedule":
            options_["warmup_epochs"] = schedule(case)["warmup_epochs"]
        found[name] = train(case, seed, own, **options_)
    reduced = {
        "num_epochs": case.budget,
        "checkpoint_dir": first,
        "dim_reduce": True,
        "dim_reduce_scope": case.scope,
        "n_component": case.n_component,
        "weight_load_dir": f"{first}/snapshots",
    }
    large = {"global_batch_size": case.large_batch, "line_search_trials": 20}
    for name, changed in (("reduced", {}), ("reduced_large", large)):
        own = os.path.join(folder, f"{seed}-{name}")
        found[name] = train(case, seed, own, **reduced, **changed)
    found["average"] = average(first)
    found["average_last"] = average(first, case.snapshots_per_epoch)
    sys.stderr.write(f"seed {seed}: {json.dumps(found)}\n")
    return found


def schedule(case):
    """Options of the whole schedule: up in 1/18 of it, down to 0 in a straight line."""
    return {
        "num_epochs": case.epochs,
        "learning_rate": case.learning_rate,
        "lr_base_batch_size": 0,
        "learning_rate_decay_type": "linear",
        "end_learning_rate": 0,
        "warmup_epochs": case.epochs / 18,
    }


def stage_1(case, seed, folder):
    """Trains until the budget is left."""
    steps = steps_per_epoch(case)
    kept = case.epochs - case.budget
    return train(
        case,
        seed,
        folder,
        stop_at_step=kept * steps,
        snapshots_per_epoch=case.snapshots_per_epoch,
        snapshot_start_epoch=max(0, kept - case.snapshot_epochs),
        snapshot_max=0,
        dim_reduce_scope="all",
        **schedule(case),
    )


def steps_per_epoch(case):
    """Of the recipe's data and batch."""
    code = (
        "import sys; from plsc_tf.jobs.builders import data;"
        "from plsc_tf.options import cli;"
        "s = cli.parse(sys.argv[1:]); n = max(1, s.performance.num_replicas);"
        "b = s.training.global_batch_size or s.training.batch_size * n;"
        "print(data.load_batches(s, b).steps_per_epoch)"
    )
    return children.last_line("-c", code, *common(case))


def common(case):
    """The options of every training run."""
    found = [f"--flagfile={children.ROOT / case.flagfile}"]
    if case.dataset_dir:
        found.append(f"--dataset_dir={os.path.abspath(case.dataset_dir)}")
    return found + case.train_options.split()


def train(case, seed, folder, **changed):
    """Trains, unless an earlier call has; returns its figures."""
    given = {
        "seed": seed,
        "snapshots_per_epoch": 0,
        "val_targets": "test",
        "eval_every_n_steps": 1_000_000,
        **changed,
    }
    words = common(case) + [f"--{name}={value}" for name, value in given.items()]

    def figures_of(results):
        return {
            "accuracy": results["test"]["accuracy"],
            "loss": results["loss"],
            "images_per_second": results["images_per_second"],
            "rate": last_rate(folder),
        }

    return children.train(DONE, folder, words, figures_of)


def last_rate(folder):
    """The learning rate of a training run's last step, as it was logged."""
    text = pathlib.Path(folder, "metrics.jsonl").read_text(encoding="utf-8")
    return [
        row["learning_rate"]
        for row in map(json.loads, text.splitlines())
        if "learning_rate" in row
    ][-1]


def average(first, last=0):
    """Figures of the mean of a stage 1's last snapshots, in a process of its own."""
    path = pathlib.Path(first, f"average-{last}.json")
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    call = f"print_average({first!r}, {last})"
    code = f"from benchmarks import dim_reduce; dim_reduce.{call}"
    found = children.last_line("-c", code)
    path.write_text(json.dumps(found), encoding="utf-8")
    return found


def print_average(first, last):
    """Averages backbone and class weights, passes over the data once, and tests.

    Args:
        first: folder of the stage 1.
        last: how many snapshots, the newest; 0: all.
    """
    import numpy as np
    import tensorflow as tf

    from plsc_tf.boost import trajectory
    from plsc_tf.jobs import results
    from plsc_tf.jobs.builders import data, recipe
    from plsc_tf.options import cli
    from plsc_tf.parallel.strategy import strategy

    settings = cli.parse([f"--flagfile={first}/flags.cfg"])
    model = recipe.build_model(settings, strategy(1))
    whole = trajectory.layout_of(model, "all")
    rows = trajectory.open_folder(f"{first}/snapshots", whole, 1)[-last:]
    flat = np.mean([row.read(0, whole.size) for row in rows], axis=0, dtype=np.float64)
    trained = iter(model.backbone.trainable_variables)
    for piece in whole.pieces:
        values = flat[piece.start : piece.stop].reshape(piece.shape)
        if piece.rows:
            model.head.arrays()[piece.rows].write(0, values.astype(np.float32))
        else:
            next(trained).assign(values)
    batch = settings.training.global_batch_size
    passed = tf.function(lambda images: model(images, training=True))
    for images, *_ in data.load_batches(settings, batch).epoch(0):
        passed(images)
    figures = results.test_figures(model, data.load_test(settings))
    print(json.dumps({**figures, "loss": None}))


if __name__ == "__main__":
    options.run(main, ReduceCase, __doc__)
