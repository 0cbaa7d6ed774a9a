"""Accuracy of trainings in bfloat16 and float16 compared with float32, seed by seed.

For each recipe and seed the same training runs in each precision: initial weights,
order of the images and augmentation are those of the seed. The schedule is shortened to
the epochs in RECIPES. The last line printed is one JSON object.

    python -m benchmarks.half_precision --data_root=data --work_dir=half_precision
    python -m benchmarks.half_precision --data_root=data --recipes=cifar10 --seeds=1
"""

import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from benchmarks import machine, options
from plsc_tf.flags.option import OptionGroup, option

ROOT = pathlib.Path(__file__).parents[1]
DONE = "half_precision.json"  # figures of a finished run
# Each recipe's folder below data_root, and the epochs that take about five minutes in
# float32 on two cores.
RECIPES = {
    "lfw112": ("lfw112", 14),
    "omniglot": ("omniglot_background", 14),
    "cifar10": ("cifar10_jpeg", 4),
}
PRECISIONS = {"float32": [], "bfloat16": ["--use_bf16"], "float16": ["--use_fp16"]}


class HalfCase(OptionGroup):
    """Which trainings are compared."""

    data_root: str = option("", "folder with the unpacked data of all recipes")
    recipes: str = option(",".join(RECIPES), "recipes, separated by commas")
    precisions: str = option("bfloat16,float16", "compared with float32")
    seeds: int = option(5, "trainings of each recipe and precision", lower=1)
    first_seed: int = option(0, "first of the seeds")
    train_options: str = option("", "more options of each training run, with spaces")
    work_dir: str = option("", "folder for the runs; empty: a temporary one")


def main(case):
    """Runs all trainings and prints the table and the figures."""
    recipes = _names(case.recipes, RECIPES, "recipes")
    precisions = _names(case.precisions, PRECISIONS, "precisions")
    folder = case.work_dir or tempfile.mkdtemp(prefix="half_precision-")
    os.makedirs(folder, exist_ok=True)
    runs = {recipe: {} for recipe in recipes}
    try:
        with machine.watch_others() as others:
            for recipe in recipes:
                for seed in range(case.first_seed, case.first_seed + case.seeds):
                    for precision in dict.fromkeys(("float32", *precisions)):
                        found = train(case, recipe, precision, seed, folder)
                        runs[recipe].setdefault(precision, []).append(found)
    finally:
        if not case.work_dir:
            shutil.rmtree(folder)
    figures = {recipe: compare(found) for recipe, found in runs.items()}
    for recipe, found in figures.items():
        for precision, one in found.items():
            line = "accuracy {mean:7.4f}, less float32 {difference:+.4f} ± {error:.4f}"
            print(f"{recipe:9} {precision:9}", line.format(**one))
    print(
        json.dumps(
            {
                "recipes": figures,
                **dataclasses.asdict(case),
                **others,
                "machine": machine.describe(),
            }
        )
    )


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
    own = pathlib.Path(folder, f"{recipe}-{precision}-{seed}")
    done = own / DONE
    if done.exists():
        return json.loads(done.read_text(encoding="utf-8"))
    command = [
        *(sys.executable, "-m", "plsc_tf.train"),
        f"--flagfile={ROOT}/hparams/{recipe}.cfg",
        f"--dataset_dir={os.path.abspath(os.path.join(case.data_root, data))}",
        f"--model_save_dir={own}",
        f"--num_epochs={epochs}",
        f"--seed={seed}",
        *("--noexport_at_end", "--notensorboard", "--norun_report"),
        *PRECISIONS[precision],
        *case.train_options.split(),
    ]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    if ended.returncode:
        raise RuntimeError(f"The command failed: {' '.join(command)}")
    results = json.loads((own / "results.json").read_text(encoding="utf-8"))
    sets = results.get("verification") or {"": results.get("test")}
    (measured,) = sets.values()
    found = {
        "accuracy": measured["accuracy"],
        "images_per_second": results["images_per_second"],
    }
    sys.stderr.write(f"{recipe} {precision} seed {seed}: {json.dumps(found)}\n")
    done.write_text(json.dumps(found), encoding="utf-8")
    return found


def _names(text, known, option_name):
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(
            f"{option_name} must be one of {', '.join(known)}. Received: {text!r}"
        )
    return names


if __name__ == "__main__":
    try:
        main(options.parse(HalfCase, __doc__))
    except (ValueError, OSError, RuntimeError) as error:
        sys.exit(f"benchmarks.half_precision: {error}")
