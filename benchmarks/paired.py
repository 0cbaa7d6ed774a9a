"""Recipes trained in several variants, compared with one of them seed by seed."""

import json
import os
import pathlib
import statistics
import sys

from benchmarks import children, machine
from plsc_tf.flags.option import OptionGroup, option

# Each recipe's folder below data_root, and the epochs that take about five minutes in
# float32 on two cores.
RECIPES = {
    "lfw112": ("lfw112", 14),
    "omniglot": ("omniglot_background", 14),
    "cifar10": ("cifar10_jpeg", 4),
}
# The 97.5% quantiles of Student's t for 1, 2, ... degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


class PairedCase(OptionGroup):
    """Which trainings are compared."""

    data_root: str = option("", "folder with the unpacked data of all recipes")
    recipes: tuple[str, ...] = option(
        tuple(RECIPES), "recipes", choices=" ".join(RECIPES)
    )
    seeds: int = option(5, "trainings of each recipe and variant", lower=1)
    first_seed: int = option(0, "first of the seeds")
    train_options: str = option("", "more options of each training run, with spaces")
    work_dir: str = option("", "folder for the runs; empty: a temporary one")


def run(case, name, variants):
    """Trains each recipe and seed in each variant, and prints the comparison.

    Args:
        case: a `PairedCase`.
        name: what the temporary folder's name begins with.
        variants: function of a recipe and the folder of the runs; returns {variant:
            options of `plsc_tf.train`}. The others are compared with the first.
    """
    with (
        machine.work_dir(name, case.work_dir) as folder,
        machine.report(case) as figures,
    ):
        figures["recipes"] = {}
        for recipe in case.recipes:
            chosen = variants(recipe, folder)
            runs = {variant: [] for variant in chosen}
            for seed in range(case.first_seed, case.first_seed + case.seeds):
                for variant, words in chosen.items():
                    found = train(case, recipe, variant, words, seed, folder)
                    runs[variant].append(found)
            figures["recipes"][recipe] = compared = compare(runs)
            for variant, one in compared.items():
                line = "accuracy {mean:7.4f}, difference {difference:+.4f} ± {half:.4f}"
                print(f"{recipe:9} {variant:13}", line.format(**one))


def compare(runs):
    """Accuracies of a recipe, and their paired differences from the first variant.

    Args:
        runs: `{variant: [{"accuracy": ..., "images_per_second": ...} of each seed]}`.

    Returns:
        `{variant: figures}`: `error` is the standard error of the mean difference and
        `half` half the width of its 95% interval, by Student's t; 0 with one seed.
    """
    first = [run["accuracy"] for run in next(iter(runs.values()))]
    figures = {}
    for variant, found in runs.items():
        accuracy = [run["accuracy"] for run in found]
        apart = [one - other for one, other in zip(accuracy, first, strict=True)]
        speeds = [run["images_per_second"] for run in found]
        error, degrees = 0.0, min(len(apart) - 1, len(_STUDENT))
        if degrees:
            error = statistics.stdev(apart) / len(apart) ** 0.5
        figures[variant] = {
            "accuracy": accuracy,
            "mean": statistics.fmean(accuracy),
            "difference": statistics.fmean(apart),
            "error": error,
            "half": error * _STUDENT[degrees - 1],
            "images_per_second": statistics.median(speeds),
        }
    return figures


def train(case, recipe, variant, words, seed, folder):  # noqa: PLR0913 - one training
    """Trains, unless an earlier call has; returns its figures."""
    data, epochs = RECIPES[recipe]
    words = [
        f"--flagfile=hparams/{recipe}.cfg",
        f"--dataset_dir={os.path.abspath(os.path.join(case.data_root, data))}",
        f"--num_epochs={epochs}",
        f"--seed={seed}",
        *words,
        *case.train_options.split(),
    ]
    run_dir = pathlib.Path(folder, f"{recipe}-{variant}-{seed}").absolute()
    done = run_dir / "paired.json"
    if not done.exists():
        children.train([*words, "--notensorboard", "--norun_report"], run_dir)
        results = json.loads((run_dir / "results.json").read_text(encoding="utf-8"))
        (test,) = (results.get("verification") or {"": results.get("test")}).values()
        speed = results["images_per_second"]
        found = {"accuracy": test["accuracy"], "images_per_second": speed}
        done.write_text(json.dumps(found), encoding="utf-8")
    text = done.read_text(encoding="utf-8")
    sys.stderr.write(f"{recipe} {variant} seed {seed}: {text}\n")
    return json.loads(text)
