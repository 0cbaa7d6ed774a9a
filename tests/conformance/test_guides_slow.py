"""Every command of the guides that can run without a cluster or a download.

    pytest -m slow -s tests/conformance/test_guides_slow.py

takes more than an hour on two cores: the guides train two dozen times. Commands are run
in the order of the page, in a folder that has what the page takes for granted, as they
stand there, or with the further options of guide_cases.py.
"""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.conformance import guide_cases as cases
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
# What a server prints when it is ready.
SERVERS = {"plsc_tf.serve": "serving port=", "tensorboard": " at http://"}
MINUTES = 60


def run(words, cwd):
    """Runs a program; of a server, until it serves. Returns (status, output)."""
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    options = {"cwd": cwd, "env": environ, "text": True}
    for name, ready in SERVERS.items():
        if name in words:
            return _run_until([*words, "--port=0"], ready, options)
    with open(cwd / "output.log", "w+", encoding="utf-8") as log:
        done = subprocess.run(
            words, stdout=log, stderr=log, timeout=MINUTES * 60, **options
        )
        log.seek(0)
        return done.returncode, log.read()


def _run_until(words, ready, options):
    """Runs a server until it says that it is ready. Returns (status, output)."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(words, **pipes, **options)
    text = ""
    try:
        while ready not in text and (line := process.stdout.readline()):
            text += line
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    ended = process.returncode in (0, -signal.SIGTERM)
    return (0 if ended and ready in text else 1), text + rest


def run_module(name, words, cwd):
    """Runs `python -m plsc_tf.<name>`; see `run`."""
    return run([sys.executable, "-m", f"plsc_tf.{name}", *words], cwd)


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
    """Yields (line, words of the program) of what of a guide is run here."""
    for line in guides.lines(path):
        if cases.of(cases.OTHER_LINES, path.name, line) is True:
            yield line, shlex.split(line, comments=True)
        if cases.of(cases.ELSEWHERE, path.name, line):
            continue
        more = cases.of(cases.SMALLER, path.name, line) or ""
        for module, words in guides.in_line(line, cases.BLANKS):
            program = [sys.executable, "-m", f"plsc_tf.{module}"]
            yield line, [*program, *words, *more.split()]


def run_page(path, folder):
    """Runs the steps of a guide; returns what went wrong."""
    wrong = []
    for line, words in steps(path):
        # What the command makes is not there yet.
        for name in re.findall(OUTPUTS, line):
            _move_away(folder / name)
            _move_away((folder / name).with_suffix(".txt"))
        start = time.monotonic()
        status, text = run(words, folder)
        print(f"{path.name}: {status}, {time.monotonic() - start:.0f} s: {line}")
        fits_not = "--dry_run" in words and "num_classes" in text
        if status and not (status == 1 and fits_not):
            wrong.append(f"{path.name}: {line}\n{text[-1500:]}")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("path", guides.GUIDES, ids=lambda path: path.name)
def test_commands_run(path, prepared, tmp_path):
    if not list(steps(path)):
        pytest.skip("no command that runs here")
    folder = tmp_path / "here"
    shutil.copytree(prepared[0], folder, symlinks=True)
    wrong = run_page(path, folder)
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


@pytest.mark.parametrize("path", guides.GUIDES, ids=lambda path: path.name)
def test_every_line_is_run_or_shown_elsewhere(path):
    others = guides.other_lines(path)
    for line in others:
        assert cases.of(cases.OTHER_LINES, path.name, line), f"{path.name}: {line}"
    ours = [line for line in guides.lines(path) if line not in others]
    for entries, lines in (
        (cases.OTHER_LINES, others),
        (cases.SMALLER, ours),
        (cases.ELSEWHERE, ours),
    ):
        for guide, words, _ in entries:
            fitting = [line for line in lines if words in line]
            assert guide != path.name or len(fitting) == 1, (words, fitting)


def test_what_shows_it_elsewhere_exists():
    for _, words, shown in (*cases.ELSEWHERE, *cases.OTHER_LINES):
        if shown is True or ".py" not in shown:
            continue
        name, _, test = shown.partition("::")
        text = (ROOT / "tests" / name).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in text, (words, shown)
