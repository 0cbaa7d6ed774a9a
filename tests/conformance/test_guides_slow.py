"""Every command of the guides that can run without a cluster or a download, verbatim.

    pytest -m slow tests/conformance/test_guides_slow.py

takes an hour on two cores: the guides train a dozen times. Commands are run in the
order of the page, in a folder that has what the page takes for granted.
"""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from tests.conformance import guide_commands as guides
from tests.conformance.guide_folder import fill, fill_more, jpeg
from tests.data import recordio_writer

ROOT = guides.ROOT
# What cannot run here: words of the command, and the test that shows it instead.
ELSEWHERE = {
    "srun ": "parallel/test_cluster.py",
    "cluster_node_ips=10.0.0.1": "cluster/test_two_hosts.py",
    "--selected_gpus": "launch/test_plan.py",
    "hdfs://": "hdfs/test_hdfs_training.py",
    "--import_from": "importers/test_import_checkpoint.py",
    "imported/": "importers/test_import_checkpoint.py",
    "hparams/ms1m.cfg --dataset_dir": "entry/test_examples.py",
    "hparams/ms1m.cfg --preprocessing_name": "data/test_preprocessing.py",
    "--template_dirs": "evaluation/test_templates.py",
    "=<": "classes/test_edit_command.py",
    "hparams/lenet_mnist.cfg": "conformance/test_hparams.py",
    "hparams/flowers.cfg": "conformance/test_hparams.py",
    "hparams/cifar10.cfg": "conformance/test_hparams.py",
    # ResNet50 with 85,742 classes of 112 x 112 pixels, PLSC's defaults.
    "--num_epochs=1 --model_save_dir=saved_model": "entry/test_examples.py",
    "saved_model/0": "entry/test_examples.py",
    "--checkpoint_dir=saved_model ": "entry/test_examples.py",
    "hparams/fastnn_defaults.cfg": "conformance/test_hparams.py",
    "--landmarks": "embed/test_embed.py",
}
SMALL_RUN = (
    "--dataset_name=image_list --dataset_dir=train_data --num_classes=50 "
    "--image_shape=3,48,48 --batch_size=25 --num_replicas=2 --model_name=resnet10 "
    "--model_options=width=8 --emb_size=16 --num_epochs=1 --val_targets=lfw"
)
# Options that name what is written and must not be there.
OUTPUTS = r"--(?:output|output_dir|edit_dir|new_list|cleaned_list|noise_report)=(\S+)"
MINUTES = 60


def run(module, words, cwd):
    """Runs a command; of a server, until it serves. Returns (status, output)."""
    program = [sys.executable, "-m", f"plsc_tf.{module}", *words]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = {"cwd": cwd, "env": environ, "text": True}
    if module != "serve":
        with open(cwd / "output.log", "w+", encoding="utf-8") as log:
            done = subprocess.run(
                program, stdout=log, stderr=log, timeout=MINUTES * 60, **options
            )
            log.seek(0)
            return done.returncode, log.read()
    process = subprocess.Popen(
        [*program, "--port=0"], stdout=subprocess.PIPE, **options
    )
    try:
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
    finally:
        process.kill()
    return (status, line) if line.startswith("serving port=") else (1, line)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The folder, with a run in each place where the guides have one."""
    folder = tmp_path_factory.mktemp("guides")
    fill(folder)
    fill_more(folder)
    (folder / "hparams").symlink_to(ROOT / "hparams")
    (folder / "faces_emore").mkdir()
    pictures = [jpeg(label, n) for label in range(4) for n in range(3)]
    labels = [label for label in range(4) for _ in range(3)]
    contents = recordio_writer.insightface(pictures, labels)
    recordio_writer.write(folder / "faces_emore" / "train.rec", contents)
    for name in ("output", "output/ms1m", "runs/ms1m"):
        words = [*SMALL_RUN.split(), f"--model_save_dir={name}"]
        status, text = run("train", words, folder)
        assert status == 0, text
    words = ["--dataset_name=folder", "--dataset_dir=flower_photos"]
    status, text = run("convert", [*words, "--output_dir=shards"], folder)
    assert status == 0, text
    quickstart = ["--flagfile=hparams/quickstart.cfg"]
    status, text = run("train", quickstart, folder)
    assert status == 0, text
    shutil.copytree(folder / "output/quickstart/export", folder / "serving/face")
    shutil.rmtree(folder / "output/export", ignore_errors=True)
    shutil.copytree(folder / "output/quickstart/export", folder / "output/export")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("path", guides.GUIDES, ids=lambda path: path.name)
def test_commands_run(path, prepared, tmp_path):
    commands = [c for c in guides.commands() if c.guide == path.name]
    if not commands:
        pytest.skip("no command of plsc_tf")
    folder = tmp_path / "here"
    shutil.copytree(prepared, folder, symlinks=True)
    wrong = []
    for command in commands:
        if any(words in command.line for words in ELSEWHERE):
            continue
        # What the command makes is not there yet.
        for name in re.findall(OUTPUTS, command.line):
            _move_away(folder / name)
            _move_away((folder / name).with_suffix(".txt"))
        status, text = run(command.module, command.words, folder)
        fits_not = "--dry_run" in command.words and "num_classes" in text
        if status and not (status == 1 and fits_not):
            wrong.append(f"{command}\n{text[-1500:]}")
    assert not wrong, "\n\n".join(wrong)


def _move_away(path):
    if path.exists():
        path.rename(
            path.with_name(f"{path.name}-before-{len(os.listdir(path.parent))}")
        )


def test_what_is_shown_elsewhere():
    """Each exception is needed, and its test exists."""
    text = "\n".join(command.line for command in guides.commands())
    for words, test in ELSEWHERE.items():
        assert (ROOT / "tests" / test).is_file(), test
        assert words in text, f"no command has {words!r} any more"
