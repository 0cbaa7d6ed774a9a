"""Compares the losses of two commits of this repository, bit by bit.

A training with each set of options runs on both commits, on this machine, and the
losses of its steps must be the same. The exit status is 1 where they differ. The last
line printed is one JSON object.

    python -m benchmarks.same_numbers --before=f271e5f
    python -m benchmarks.same_numbers --before=f271e5f --after=HEAD \\
        --train_options="--flagfile=hparams/lfw112.cfg --dataset_dir=/data/lfw112"
"""

import itertools
import os
import pathlib
import shlex
import subprocess
import sys

from benchmarks import children, machine, options
from plsc_tf.flags.option import OptionGroup, option

QUICKSTART = "--flagfile=hparams/quickstart.cfg"
TRAININGS = (
    QUICKSTART,
    f"{QUICKSTART} --sample_rate=0.3",
    f"{QUICKSTART} --use_bf16",
    f"{QUICKSTART} --loss_type=dist_adaface",
)


class SameNumbersCase(OptionGroup):
    """Which commits are compared, and how."""

    before: str = option("", "the first commit")
    after: str = option("", "the second commit; empty: the working tree")
    steps: int = option(60, "steps of each training run", lower=1)
    train_options: str = option(
        "", "options of plsc_tf.train, with spaces; empty: four kinds of quick start"
    )


def main(case):
    """Runs all trainings twice; returns 0 if the losses are the same, else 1."""
    if not case.before:
        raise ValueError("before must name a commit. Received: before=''.")
    found = {}
    with machine.scratch("same_numbers") as folder, machine.report(case) as figures:
        trees = [
            _tree(commit, os.path.join(folder, name))
            for name, commit in (("before", case.before), ("after", case.after))
        ]
        for words in [case.train_options] if case.train_options else TRAININGS:
            losses = [_losses(tree, words, case.steps) for tree in trees]
            found[words] = _first_difference(*losses)
            sys.stdout.write(f"{words}: {found[words] or 'the same'}\n")
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


def _losses(tree, words, steps):
    """The lines of losses.txt of a training run on the code in `tree`."""
    arguments = ["--save_losses", "--nowith_test", f"--stop_at_step={steps}"]
    with machine.scratch("same_numbers") as folder:
        run_dir = pathlib.Path(folder, "run")
        children.train([*shlex.split(words), *arguments], run_dir, tree)
        return (run_dir / "losses.txt").read_text(encoding="utf-8").splitlines()


def _first_difference(before, after):
    """The first two lines that differ, as text; empty where there are none."""
    for lines in itertools.zip_longest(before, after):
        if lines[0] != lines[1]:
            return f"{lines[0]} is {lines[1]} now"
    return ""


if __name__ == "__main__":
    options.run(main, SameNumbersCase, __doc__)
