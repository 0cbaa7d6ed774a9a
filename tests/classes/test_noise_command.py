"""The command that reports labels that look wrong, and what it writes."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from plsc_tf.checkpoints import manifest
from plsc_tf.jobs.classes.edit import read_groups
from tests.classes.tiny import run_command

PICTURES = 3 * 5 + 3 * 6


@pytest.fixture(scope="module")
def reported(trained, tmp_path_factory):
    """(folder of what was written, rows of the table, the report)."""
    root = tmp_path_factory.mktemp("noise")
    table = run_command(
        f"--model_save_dir={trained[0]}",
        f"--noise_report={root / 'noise.json'}",
        f"--noise_sheets={root / 'sheets'}",
        f"--new_list={root / 'cleaned.txt'}",
        # Nearly nothing was learned: much looks alike, nothing is much nearer.
        "--noise_pair=0.6",
        "--noise_margin=0.001",
    )
    return root, table, json.loads((root / "noise.json").read_text())


def test_the_report_tells_what_was_found(trained, reported):
    root, table, content = reported
    assert content["pictures"] == PICTURES and content["classes"] == 6
    assert content["checkpoint"] == str(trained[0] / "0")
    assert content["thresholds"] == {"pair": 0.6, "margin": 0.001, "split": 6.0}
    pairs = content["near_duplicates"]
    assert pairs["count"] > 0
    first = pairs["listed"][0]
    assert first["names"] == [f"person{label:02d}" for label in first["classes"]]
    assert first["pictures"] == [5 + label % 2 for label in first["classes"]]
    assert first["found"] and first["alike"] >= 0.6
    for one in content["mislabelled"]["listed"]:
        assert one["cosine_there"] - one["cosine"] > 0.001 - 1e-4
        assert f"person{one['label']:02d}" in one["picture"]
    assert content["two_in_one"]["not_judged"] <= 6
    assert f"{pairs['count']} pairs" in table["two classes, one identity"]


def test_a_list_of_merges_that_may_be_edited_is_kept(trained, tmp_path):
    (tmp_path / "noise.merge.txt").write_text("0 1  # edited\n")
    flags = f"--model_save_dir={trained[0]} --noise_report={tmp_path / 'noise.json'}"
    with pytest.raises(FileExistsError, match="noise.merge.txt' already exists"):
        run_command(*flags.split(), "--noise_pair=0.6")
    assert (tmp_path / "noise.merge.txt").read_text() == "0 1  # edited\n"


# A manifest of some kilobytes took 26 bytes for each class that it claims.
def test_a_checkpoint_without_a_head_has_few_classes(trained, tmp_path):
    shutil.copytree(trained[0] / "0", tmp_path / "0")
    content = manifest.read(str(tmp_path / "0"))
    content["state"]["num_classes"], content["arrays"] = 2**40, {}
    (tmp_path / "0" / manifest.NAME).write_bytes(manifest.encode(content))
    flags = f"--checkpoint_dir={tmp_path / '0'} --noise_report={tmp_path / 'n.json'}"
    with pytest.raises(ValueError, match="has no head, so it may have at most 1,000,"):
        run_command(*flags.split())


def test_groups_can_be_merged_as_they_are_written(reported):
    root, _, content = reported
    groups = read_groups(str(root / "noise.merge.txt"))
    assert len(set().union(*groups)) == sum(map(len, groups))
    for pair in content["near_duplicates"]["listed"]:
        if pair["found"]:
            assert any(set(pair["classes"]) <= set(group) for group in groups)


def test_the_list_leaves_out_what_is_mislabelled(reported):
    root, _, content = reported
    lines = (root / "cleaned.txt").read_text().splitlines()
    assert len(lines) == PICTURES - content["mislabelled"]["count"]
    for line in lines:
        path, label = line.split()
        assert path.startswith(f"person{int(label):02d}/")
    out = [one["picture"] for one in content["mislabelled"]["listed"]]
    names = [line.split()[0] for line in lines]
    assert not any(picture.endswith(name) for picture in out for name in names)


def test_sheets_show_pictures_side_by_side(reported):
    root, table, content = reported
    sheet = Image.open(root / "sheets" / "near_duplicates.png")
    sheet = np.asarray(sheet.convert("RGB"))
    assert not list(root.glob("noise-*"))  # no scratch is left
    rows = min(30, content["near_duplicates"]["count"])
    # Twice five pictures of 56 and a gap, and 2 between each.
    assert sheet.shape == (58 * rows, 112 + 58 * 11, 3)
    assert sheet[:, 108:].std() > 10
