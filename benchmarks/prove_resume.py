"""Compares a training of 2K steps with one that is stopped after K steps and resumed.

All other arguments are those of `plsc_tf.train`. Each training runs in its own process,
without the final test and export. The last line printed is one JSON object: `exact`
says whether all losses and all files of the last checkpoints are the same to the bit.

    python -m benchmarks.prove_resume --steps=20 --flagfile=hparams/quickstart.cfg
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from plsc_tf.checkpoints import catalog, manifest


def main(argv=None):
    """Runs three trainings and prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=20, help="K")
    case, options = parser.parse_known_args(argv)
    with tempfile.TemporaryDirectory(prefix="prove_resume-") as folder:
        for name, last in (("whole", 2), ("resumed", 1), ("resumed", 2)):
            train(options, pathlib.Path(folder, name), last * case.steps)
        found = compare(pathlib.Path(folder))
    found["stopped_at"] = case.steps
    print(json.dumps(found))
    return 0 if found["exact"] else 1


def train(options, folder, steps):
    """Trains up to a global step; raises CalledProcessError if it fails."""
    own = ["--save_losses", "--nowith_test", "--noexport_at_end", "--norestart"]
    own += [f"--model_save_dir={folder}", f"--stop_at_step={steps}"]
    command = [sys.executable, "-m", "plsc_tf.train", *options, *own]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def compare(folder):
    """Compares the losses and the last checkpoints in "whole" and "resumed"."""
    losses, hashes = [], []
    for name in ("whole", "resumed"):
        lines = (folder / name / "losses.txt").read_text(encoding="ascii").splitlines()
        losses.append(dict(line.split() for line in lines))
        _, checkpoint = catalog.find_all(str(folder / name))[-1]
        files = manifest.read(checkpoint)["files"]
        hashes.append({file: str(entry) for file, entry in files.items()})
    # `^` keeps the items that are in only one of the two dicts.
    steps = [int(step) for step, _ in losses[0].items() ^ losses[1].items()]
    differ = sorted({file for file, _ in hashes[0].items() ^ hashes[1].items()})
    return {
        "exact": bool(losses[0]) and not steps and not differ,
        "steps": len(losses[0]),
        "first_difference": min(steps, default=None),
        "files_differ": differ,
    }


if __name__ == "__main__":
    sys.exit(main())
