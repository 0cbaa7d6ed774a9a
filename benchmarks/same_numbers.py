"""Compares the losses of two commits of this repository, bit by bit.

Each variant of a training runs on both commits, on this machine, and the losses of its
steps must be the same. The exit status is 1 where they differ. The last line printed is
one JSON object.

    python -m benchmarks.same_numbers --before=f271e5f
    python -m benchmarks.same_numbers --before=f271e5f --after=HEAD --data_root=data
"""

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile

from benchmarks import children, machine, options
from plsc_tf.flags.option import OptionGroup, option

QUICKSTART = ("--flagfile=hparams/quickstart.cfg",)
VARIANTS = {
    "quickstart": QUICKSTART,
    "partial_fc": (*QUICKSTART, "--sample_rate=0.3"),
    "bfloat16": (*QUICKSTART, "--use_bf16"),
    "adaface": (*QUICKSTART, "--loss_type=dist_adaface"),
}
# Variants on real images: their flag file and their folder below data_root.
ON_DATA = {"lfw112": "lfw112", "cifar10": "cifar10_jpeg"}


class SameNumbersCase(OptionGroup):
    """Which commits are compared, and how."""

    before: str = option("", "the first commit")
    after: str = option("", "the second commit; empty: the working tree")
    steps: int = option(60, "steps of each training run", lower=1)
    data_root: str = option(
        "", f"folder with the unpacked data of {', '.join(ON_DATA)}; empty: without"
    )
    variants: tuple[str, ...] = option(
        (), "names; empty: all", choices=" ".join([*VARIANTS, *ON_DATA])
    )


def main(case):
    """Runs all trainings twice; returns 0 if the losses are the same, else 1."""
    if not case.before:
        raise ValueError("before must name a commit. Received: before=''.")
    variants = dict(VARIANTS)
    for name, folder in ON_DATA.items():
        if case.data_root or name in case.variants:
            data = os.path.abspath(os.path.join(case.data_root, folder))
            flags = f"--flagfile=hparams/{name}.cfg", f"--dataset_dir={data}"
            variants[name] = flags
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="same_numbers-") as folder,
        machine.report(case) as figures,
    ):
        trees = [
            _tree(commit, os.path.join(folder, name))
            for name, commit in (("before", case.before), ("after", case.after))
        ]
        for name in case.variants or variants:
            losses = [_losses(tree, variants[name], case.steps) for tree in trees]
            found[name] = _first_difference(*losses)
            sys.stdout.write(f"{name:11} {found[name] or 'the same'}\n")
            sys.stdout.flush()
        figures |= {"same": not any(found.values()), "differences": found}
    return 0 if figures["same"] else 1


def _tree(commit, folder):
    """A folder with the files of a commit."""
    if not commit:
        return children.ROOT
    os.makedirs(folder)
    archive = subprocess.run(
        ["git", "archive", commit],
        cwd=children.ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder


def _losses(tree, flags, steps):
    """The lines of losses.txt of a training run on the code in `tree`."""
    options = ["--save_losses", "--nowith_test", f"--stop_at_step={steps}"]
    with tempfile.TemporaryDirectory(prefix="same_numbers-") as folder:
        run_dir = pathlib.Path(folder, "run")
        children.run_training([*flags, *options], run_dir, tree)
        return (run_dir / "losses.txt").read_text(encoding="utf-8").splitlines()


def _first_difference(before, after):
    """The first two lines that differ, as text; empty where there are none."""
    for lines in itertools.zip_longest(before, after):
        if lines[0] != lines[1]:
            return f"{lines[0]} is {lines[1]} now"
    return ""


if __name__ == "__main__":
    options.run(main, SameNumbersCase, __doc__)
