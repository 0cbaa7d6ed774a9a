"""The command: its table, its files and its exit status."""

import json

import pytest

from plsc_tf import check
from plsc_tf.options import cli
from plsc_tf.options.settings import Settings


def run(capsys, folder, **values):
    """Returns (exit status, table, errors)."""
    given = {"dataset_name": "image_list", "dataset_dir": str(folder), **values}
    with pytest.raises(SystemExit) as end:
        check.main(Settings.from_values(**given))
    shown = capsys.readouterr()
    return end.value.code, shown.out, shown.err


def test_a_number_of_classes_counts_though_it_is_the_default(sound, capsys):
    _, table, _ = run(capsys, sound, num_classes=85742)
    assert "85,742, 85,739 of them empty" in table


def test_errors_report_and_cleaned_list(sound, capsys):
    before = (sound / "label.txt").read_text()
    (sound / "images/4.png").write_bytes(b"junk")
    report, cleaned = sound / "found.json", sound / "cleaned.txt"
    status, table, _ = run(capsys, sound, report=str(report), cleaned_list=str(cleaned))
    assert status == 1
    assert "error: not_an_image  1 files that are not images" in table
    assert "label.txt, line 5 (images/4.png)" in table
    assert json.loads(report.read_text())["errors"] == 1
    lines = before.splitlines(keepends=True)
    assert cleaned.read_text() == "".join(lines[:4] + lines[5:])
    assert (sound / "label.txt").read_text() == before


def test_warnings_alone_are_sound(sound, capsys):
    with open(sound / "label.txt", "a", encoding="utf-8") as file:
        file.write("images/0.png 0\n")
    status, table, _ = run(capsys, sound)
    assert status == 0 and "warning: same_bytes" in table


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dataset_dir": "no_such_folder"}, "does not exist"),
        ({"dataset_name": "imagelist"}, "Did you mean 'image_list'"),
        ({"split": "val"}, "has no label_val.txt"),
        ({"val_targets": ("lfw",)}, "no verification set 'lfw'"),
        ({"cleaned_list": "label.txt"}, "is not overwritten"),
        ({"report": "no/x.json"}, "folder of report does not exist: 'no'"),
        (
            {"dataset_name": "mock", "cleaned_list": "x.txt"},
            "does not store images as files",
        ),
    ],
)
def test_what_cannot_be_checked(sound, capsys, monkeypatch, values, message):
    monkeypatch.chdir(sound)
    status, table, errors = run(capsys, sound, **values)
    assert status == 2 and not table
    assert "cannot be checked" in errors and message in errors


def test_the_command_line_knows_its_options():
    flags = ["--dataset_name=ms1m", "--val_targets=lfw,cfp_fp", "--near_duplicates"]
    assert cli.parse(flags, check.GROUPS).checking.near_duplicates
    with pytest.raises(cli.UsageError, match="report must end in .json"):
        cli.parse(["--report=label.txt"], check.GROUPS)


# Escape sequences in a name would clear the screen and write another verdict.
def test_names_of_files_do_not_write_on_the_terminal(sound, capsys):
    (sound / "images" / "a\x1b[2J\u202e\nerrors  0\udcff.png").write_bytes(b"junk")
    _, table, _ = run(capsys, sound, dataset_name="folder")
    assert "images/a\\x1b[2J\\u202e errors  0\ufffd.png: starts with" in table
    with pytest.raises(ValueError, match="dataset_dir must be text") as error:
        run(capsys, sound / "more\x1b[2J", dataset_name="folder")
    assert "\x1b" not in f"{table}{error.value}"
