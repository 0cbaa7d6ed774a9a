"""Flag files in both forms, and the file that repeats a run."""

import os
import re
import shutil

import pytest

from plsc_tf.options.cli import UsageError, parse
from plsc_tf.options.flagfiles import write_flags
from plsc_tf.options.settings import Settings, known_options


def written(folder, text, name="run.cfg"):
    path = folder / name
    path.write_text(text)
    return path


BOTH_FORMS = """\
# a comment
   # an indented comment
// absl's other comment

batch_size=64
--num_epochs=3
  lr = 0.5   # trailing
dataset_dir="a b # c"  # quoted
--model_save_dir='runs/x'
--calc_acc
--nowith_test
export_at_end=False
tensorboard=no
train_files=0.tfrecord,1.tfrecord
lr_steps=
max_gradient_norm=5
dropout=None
--max_gradient_norm=None
model_options=width=8
"""


def test_both_forms_are_read(tmp_path):
    settings = parse([f"--flagfile={written(tmp_path, BOTH_FORMS)}"])
    assert settings == Settings.from_values(
        batch_size=64,
        num_epochs=3,
        learning_rate=0.5,
        dataset_dir="a b # c",
        model_save_dir="runs/x",
        calc_acc=True,
        with_test=False,
        export_at_end=False,
        tensorboard=False,
        train_files=("0.tfrecord", "1.tfrecord"),
        lr_steps=(),
        max_gradient_norm=None,
        model_options="width=8",
    )


def test_files_come_first_and_the_command_line_wins(tmp_path):
    one = written(tmp_path, "batch_size=1\nseed=1\nnum_epochs=1", "one.cfg")
    two = written(tmp_path, "batch_size=2\nseed=2", "two.cfg")
    alias = "--train_batch_size=9"  # stands before the files
    settings = parse([alias, f"--flagfile={one}", "--flagfile", str(two)])
    assert settings.training.batch_size == 9
    assert settings.training.seed == 2
    assert settings.training.num_epochs == 1


def test_a_nested_file_is_found_beside_its_parent(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    written(tmp_path, "seed=5\nbatch_size=5", "base.cfg")
    path = written(tmp_path / "sub", "flagfile=../base.cfg\nbatch_size=6")
    monkeypatch.chdir("/")
    settings = parse([f"--flagfile={path}"])
    assert (settings.training.seed, settings.training.batch_size) == (5, 6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed=1\nbatchsize=3", "run.cfg:2: unknown option 'batchsize'. .*batch_size"),
        ("batch_size", "run.cfg:1: expected '=' after.*Did you mean batch_size="),
        *(
            (line, "expected '=' after 'batch_size'. Did you mean batch_size=")
            for line in ("batch_size: 7", "batch_size:7", "--batch_size : 7")
        ),
        ("--batch_size", "run.cfg:1: 'batch_size' needs a value"),
        ("train it well", "run.cfg:1: unexpected 'train it well'"),
        ("batch_size=many", "run.cfg:1: batch_size must be a whole number"),
        ('dataset_dir="a', "run.cfg:1: the quotes must enclose"),
        ('dataset_dir="a" b', "run.cfg:1: the quotes must enclose"),
        ("num_gpus=8", "run.cfg:1: unknown option.*num_replicas"),
        ("flagfile=run.cfg", "over 100 files.*included, also by itself"),
        ("flagfile=no.cfg", "run.cfg:1: flag file .*no.cfg' does not exist"),
        ("--flagfile", "run.cfg:1: --flagfile needs a path"),
    ],
)
def test_wrong_lines_are_named(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        parse([f"--flagfile={written(tmp_path, text)}"])


def test_a_missing_file_names_its_neighbour(tmp_path):
    written(tmp_path, "", "ms1m.cfg")
    with pytest.raises(UsageError, match="does not exist. Did you mean 'ms1m.cfg'"):
        parse([f"--flagfile={tmp_path / 'msm1.cfg'}"])
    with pytest.raises(UsageError, match="does not exist"):
        parse([f"--flagfile={tmp_path / 'hparam' / 'ms1m.cfg'}"])
    with pytest.raises(UsageError, match="is not a file"):
        parse([f"--flagfile={tmp_path}"])


def test_a_file_of_the_package_is_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = parse(["--flagfile=quickstart.cfg"])
    assert packaged.given and parse(["--flagfile=hparams/quickstart.cfg"]) == packaged
    (tmp_path / "sub").mkdir()
    nested = written(tmp_path / "sub", "--flagfile=quickstart.cfg\nseed=5")
    assert parse([f"--flagfile={nested}"]).given == {*packaged.given, "seed"}
    written(tmp_path, "seed=7", "quickstart.cfg")  # a local file wins
    assert parse(["--flagfile=quickstart.cfg"]).given == {"seed"}
    with pytest.raises(UsageError, match="Did you mean 'lfw112.cfg'. .* ms1m.cfg,"):
        parse(["--flagfile=lfw12.cfg"])


def _chain(length, times):
    def write(path):
        for number in range(1, length):
            path.write_text(f"--flagfile={number}.cfg\n" * times)
            path = path.with_name(f"{number}.cfg")
        path.write_text("seed=1")

    return write


def _bytes(content):
    return lambda path: path.write_bytes(content)


# A flag file from elsewhere would fill the memory, or keep the command busy or waiting.
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_chain(2000, 1), "run.cfg' and what it includes are over 100 files"),
        (_chain(28, 2), "run.cfg' and what it includes are over 100 files"),
        (_bytes(b"x" * 50_000_000), "must have at most 1,048,576 bytes"),
        (_bytes(b"seed=1\ndataset_dir=a\0b"), "not plain UTF-8 text .byte 20.; save"),
        (_bytes(b"hooks=mine\r# nothing"), "not plain UTF-8 text .byte 10."),
        (_bytes(b"\xff\xfes"), "not plain UTF-8 text .byte 2.; save"),
        (_bytes(b"model_save_dir=\xdcbung"), "run.cfg' is not plain UTF-8"),
        (os.mkfifo, "is not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a file"),
    ],
)
def test_hostile_files_are_one_error(tmp_path, make, message):
    make(tmp_path / "run.cfg")
    with pytest.raises(UsageError, match=message) as error:
        parse([f"--flagfile={tmp_path}/run.cfg"])
    assert len(str(error.value)) < 5000


def test_flags_cfg_repeats_the_run(tmp_path):
    settings = Settings.from_values(
        dropout=0.1 + 0.2,
        max_gradient_norm=1e-7,
        preprocessing_name="face",
        train_files=("a b.tfrecord", "c.tfrecord"),
        val_targets=(),
        lr_steps=(),
        with_test=False,
        dataset_dir=" it's # here ",
        checkpoint_dir='"quoted"',
        model_options="width=8,depths=1-1",
    )
    path = tmp_path / "new" / "flags.cfg"
    write_flags(settings, path)
    write_flags(settings, path)
    assert parse([f"--flagfile={path}"]) == settings
    assert list(path.parent.iterdir()) == [path]


def test_flags_cfg_holds_every_saved_option_once(tmp_path):
    path = tmp_path / "flags.cfg"
    unsaved = {"restart": True, "dry_run": True, "report": "r.json", "fs_ugi": "a,hush"}
    write_flags(Settings.from_values(**unsaved), path)
    text = path.read_text()
    assert text.startswith("# ") and "hush" not in text
    names = re.findall(r"^(?:# )?--(\w+)=", text, re.MULTILINE)
    saved = {item.name for item in known_options().values() if item.saved}
    assert sorted(names) == sorted(saved)
    assert not saved & {*unsaved, "cluster_node_ips", "task_index", "images", "port"}
    assert not parse([f"--flagfile={path}"]).checkpoints.restart


def test_flags_cfg_keeps_what_was_given_apart_from_defaults(tmp_path):
    path = tmp_path / "flags.cfg"
    # 85742 is the default: given all the same.
    write_flags(parse(["--num_classes=85742", "--lr=0.2"]), path)
    given, defaults = path.read_text().split("# Defaults:")
    names = re.findall(r"^--(\w+)", given, re.MULTILINE)
    # Without its folder, the file would mean the checkpoint that the run started from.
    assert names == ["num_classes", "learning_rate", "model_save_dir"]
    assert "# --margin=" in defaults
    assert not re.findall("^--", defaults, re.MULTILINE)
    assert parse([f"--flagfile={path}"]).given == set(names)
    # A line that loses its "# " is given, whatever its value.
    path.write_text(path.read_text().replace("# --seed=0", "--seed=0"))
    assert "seed" in parse([f"--flagfile={path}"]).given


def test_batch_size_on_the_command_line_beats_a_files_global_batch_size(tmp_path):
    path = tmp_path / "a.cfg"
    path.write_text("global_batch_size=96\n")
    assert parse([f"--flagfile={path}"]).training.global_batch_size == 96
    settings = parse([f"--flagfile={path}", "--batch_size=8"])
    assert (settings.training.batch_size, settings.training.global_batch_size) == (8, 0)
    both = ["--batch_size=8", "--global_batch_size=24"]
    assert parse([f"--flagfile={path}", *both]).training.global_batch_size == 24


def test_the_flags_of_a_copied_run_name_another(tmp_path, caplog):
    # Otherwise, commands would use the original without a word.
    run, copy = tmp_path / "run", tmp_path / "copy"
    write_flags(Settings.from_values(model_save_dir=str(run)), run / "flags.cfg")
    (run / "0").mkdir()
    (run / "0/manifest.json").write_text("{}")
    shutil.copytree(run, copy)
    for folder, *options in (run,), (copy, f"--model_save_dir={copy}"), (copy,):
        assert not caplog.messages
        parse([f"--flagfile={folder}/flags.cfg", *options])
    assert f"{run}. To use the former, add --model_save_dir={copy}" in caplog.text
