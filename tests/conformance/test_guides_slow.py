"""Every command of the guides that needs no cluster, no download and no server.

    pytest -m slow -s tests/conformance/test_guides_slow.py

takes more than an hour on two cores: the guides train two dozen times. Commands are run
in the order of the page, in a folder that has what the page takes for granted, as they
stand there, or with the further options of SMALLER.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.conformance import guide_commands as guides
from tests.conformance import guide_folder, guide_more

ROOT = guides.ROOT
SMALL_RUN = (
    "--dataset_name=image_list --dataset_dir=train_data --num_classes=50 "
    "--image_shape=3,48,48 --batch_size=25 --num_replicas=2 --model_name=resnet10 "
    "--model_options=width=8 --emb_size=16 --num_epochs=1 --model_save_dir=runs/ms1m"
)
IMPORT = (
    "--import_from=output/119 --model_name=ResNet50 --checkpoint_dir=imported/r50 "
    "--emb_size=6 --image_shape=3,16,16"
)
# Options that name what is written and must not be there.
OUTPUTS = r"--(?:output|output_dir|edit_dir|new_list|cleaned_list|noise_report)=(\S+)"
# Words of commands whose data, machines or servers a test lacks; their rooms' tests
# run such ones.
ELSEWHERE = (
    *("hdfs://", "work_dirs/", "10.0.0.1", "SLURM", "--gpus-per-node", "plsc_tf.serve"),
    *("faces_emore", "IJBC", "mnist", "cifar10"),
)
# (guide, words of the line, further options that make the command fit this machine).
_NETWORK = "--image_shape=3,48,48 --model_name=resnet10 --model_options=width=8"
_SMALL = f"{_NETWORK} --num_classes=50 --emb_size=16 --batch_size=25 --num_replicas=2"
_SHORT = f"{_SMALL} --num_epochs=1"
_LIST = "--dataset_name=image_list --dataset_dir=train_data"
_PLSC = "--emb_size=6 --image_shape=3,16,16"
_EDITED = f"{_SHORT} --num_classes=1052 {_LIST} --allow_empty_classes"
_IMPORTED = (
    f"{_PLSC} {_LIST} --model_name=ResNet50 --num_classes=50 --batch_size=25 "
    "--num_epochs=1 --val_targets=lfw"
)
SMALLER = (
    (
        "README.md",
        "--dataset_dir=train_data --batch_size=64",
        f"{_SMALL} --num_epochs=1",
    ),
    ("classes.md", "=<data with the new", "--num_epochs=2 --allow_empty_classes"),
    ("classes.md", "--num_classes=<new>", _EDITED),
    ("from_plsc.md", "plsc_tf.train --dataset_name=image_list", _SMALL),
    ("importing.md", "--import_from=output/119", _PLSC),
    ("importing.md", "--model_save_dir=runs/r50 ...", _IMPORTED),
    ("preprocessing.md", "--low_resolution=0.2", _SHORT),
)
# What stands for a blank that only the reader can fill in.
BLANKS = {
    "<data with the new labels>": "train_data",
    "<new>": "1052",
    "<new folder>": "runs/from_classes",
}


def run_module(name, words, cwd):
    """Runs `python -m plsc_tf.<name>`; returns (status, output)."""
    done = subprocess.run(
        [sys.executable, "-m", f"plsc_tf.{name}", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3600,
    )
    return done.returncode, done.stdout


def prepare(folder):
    """Fills a folder, with a run in each place where the guides have one.

    Returns:
        what the quick start prints.
    """
    guide_folder.fill(folder)
    guide_more.fill(folder)
    for name in ("hparams", "scripts"):
        (folder / name).symlink_to(ROOT / name)
    shards = "--dataset_name=folder --dataset_dir=flower_photos --output_dir=shards"
    quickstart = ["--flagfile=hparams/quickstart.cfg"]
    for module, words in (
        ("train", SMALL_RUN.split()),
        ("import_checkpoint", IMPORT.split()),
        ("convert", shards.split()),
        ("train", quickstart),
    ):
        status, text = run_module(module, words, folder)
        assert status == 0, text
    shutil.copytree(folder / "output/quickstart/export", folder / "serving/face")
    return text


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """(the folder, what the quick start prints)."""
    folder = tmp_path_factory.mktemp("guides")
    return folder, prepare(folder)


def steps(path):
    """Yields (line, module, words) of the commands of a guide that run here."""
    for line in guides.lines(path):
        if any(words in line for words in ELSEWHERE):
            continue
        more = [o for name, words, o in SMALLER if name == path.name and words in line]
        for module, words in guides.in_line(line, BLANKS):
            yield line, module, [*words, *" ".join(more).split()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [path for path in guides.GUIDES if list(steps(path))],
    ids=lambda path: path.name,
)
def test_commands_run(path, prepared, tmp_path):
    folder, wrong = tmp_path / "here", []
    shutil.copytree(prepared[0], folder, symlinks=True)
    for line, module, words in steps(path):
        # What the command makes is not there yet.
        for name in re.findall(OUTPUTS, line):
            _move_away(folder / name)
            _move_away((folder / name).with_suffix(".txt"))
        status, text = run_module(module, words, folder)
        fits_not = "--dry_run" in words and "num_classes" in text
        if status and not (status == 1 and fits_not):
            wrong.append(f"{line}\n{text[-1500:]}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.slow
def test_the_quick_start_prints_what_the_readme_shows(prepared):
    shown = re.search(
        r"never saw:\n\n```text\n(.*?)```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    names = [re.split("  +", line)[0] for line in shown[1].splitlines()]
    printed = [re.split("  +", line)[0] for line in prepared[1].splitlines()]
    assert names == [name for name in printed if name in names]


def _move_away(path):
    if path.exists():
        path.rename(
            path.with_name(f"{path.name}-before-{len(os.listdir(path.parent))}")
        )
