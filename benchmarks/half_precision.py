"""Accuracy of trainings with 16 and 8 bits compared with float32, seed by seed.

For each recipe and seed the same training runs in each precision, of the computation or
of the class weights and their momentum: initial weights, order of the images and
augmentation are those of the seed. The schedule is shortened to the epochs in RECIPES.
The last line printed is one JSON object.

    python -m benchmarks.half_precision --data_root=data --work_dir=half_precision
    python -m benchmarks.half_precision --data_root=data --recipes=cifar10 --seeds=1
"""

import json
import os
import pathlib
import statistics
import sys

from benchmarks import children, machine, options
from plsc_tf.flags.option import OptionGroup, option

# Each recipe's folder below data_root, and the epochs that take about five minutes in
# float32 on two cores.
RECIPES = {
    "lfw112": ("lfw112", 14),
    "omniglot": ("omniglot_background", 14),
    "cifar10": ("cifar10_jpeg", 4),
}
PRECISIONS = {
    "float32": [],
    "bfloat16": ["--use_bf16"],
    "float16": ["--use_fp16"],
    "bfloat16_head": ["--head_weight_dtype=bfloat16", "--head_slot_dtype=bfloat16"],
    "int8_head": ["--head_weight_dtype=int8", "--head_slot_dtype=int8"],
}


class HalfCase(OptionGroup):
    """Which trainings are compared."""

    data_root: str = option("", "folder with the unpacked data of all recipes")
    recipes: tuple[str, ...] = option(
        tuple(RECIPES), "recipes", choices=" ".join(RECIPES)
    )
    precisions: tuple[str, ...] = option(
        ("bfloat16", "float16"),
        "compared with float32",
        choices=" ".join(PRECISIONS),
    )
    seeds: int = option(5, "trainings of each recipe and precision", lower=1)
    first_seed: int = option(0, "first of the seeds")
    train_options: str = option("", "more options of each training run, with spaces")
    work_dir: str = option("", "folder for the runs; empty: a temporary one")


def main(case):
    """Runs all trainings and prints the table and the figures."""
    runs = {recipe: {} for recipe in case.recipes}
    with (
        machine.work_dir("half_precision", case.work_dir) as folder,
        machine.report(case) as figures,
    ):
        for recipe in case.recipes:
            for seed in range(case.first_seed, case.first_seed + case.seeds):
                for precision in dict.fromkeys(("float32", *case.precisions)):
                    found = train(case, recipe, precision, seed, folder)
                    runs[recipe].setdefault(precision, []).append(found)
        figures["recipes"] = {name: compare(found) for name, found in runs.items()}
        for recipe, found in figures["recipes"].items():
            for precision, one in found.items():
                line = (
                    "accuracy {mean:7.4f}, less float32 {difference:+.4f} ± {error:.4f}"
                )
                print(f"{recipe:9} {precision:13}", line.format(**one))


def compare(runs):
    """Accuracies of a recipe, and their paired differences from float32.

    Args:
        runs: `{precision: [{"accuracy": ..., "images_per_second": ...} of each seed]}`.

    Returns:
        `{precision: figures}`: `error` is the standard error of the mean difference,
        0 with one seed.
    """
    exact = [run["accuracy"] for run in runs["float32"]]
    figures = {}
    for precision, found in runs.items():
        accuracy = [run["accuracy"] for run in found]
        apart = [one - other for one, other in zip(accuracy, exact, strict=True)]
        speeds = [run["images_per_second"] for run in found]
        spread = statistics.stdev(apart) if len(apart) > 1 else 0.0
        figures[precision] = {
            "accuracy": accuracy,
            "mean": statistics.fmean(accuracy),
            "difference": statistics.fmean(apart),
            "error": spread / len(apart) ** 0.5,
            "images_per_second": statistics.median(speeds),
        }
    return figures


def train(case, recipe, precision, seed, folder):
    """Trains, unless an earlier call has; returns its figures."""
    data, epochs = RECIPES[recipe]
    words = [
        f"--flagfile=hparams/{recipe}.cfg",
        f"--dataset_dir={os.path.abspath(os.path.join(case.data_root, data))}",
        f"--num_epochs={epochs}",
        f"--seed={seed}",
        *PRECISIONS[precision],
        *case.train_options.split(),
    ]
    run_dir = pathlib.Path(folder, f"{recipe}-{precision}-{seed}").absolute()
    done = run_dir / "half_precision.json"
    if not done.exists():
        children.train([*words, "--notensorboard", "--norun_report"], run_dir)
        results = json.loads((run_dir / "results.json").read_text(encoding="utf-8"))
        (test,) = (results.get("verification") or {"": results.get("test")}).values()
        speed = results["images_per_second"]
        found = {"accuracy": test["accuracy"], "images_per_second": speed}
        done.write_text(json.dumps(found), encoding="utf-8")
    text = done.read_text(encoding="utf-8")
    sys.stderr.write(f"{recipe} {precision} seed {seed}: {text}\n")
    return json.loads(text)


if __name__ == "__main__":
    options.run(main, HalfCase, __doc__)
