"""Checkpoints that are not what was written: noticed, named, and nothing is loaded."""

import re
import shutil

import pytest

from plsc_tf.checkpoints import catalog, manifest, reader
from plsc_tf.checkpoints.manifest import DamagedCheckpointError
from tests.checkpoints.small import FILES, Target, save, save_run
from tests.folders import contents

GOOD, BAD = "step_00000020", "step_00000030"


@pytest.fixture
def run(tmp_path):
    """The folder of a run with checkpoints of steps 10, 20 and 30."""
    save_run(tmp_path)
    return tmp_path


def flip(path, place=-9):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << place % 8
    path.write_bytes(content)


def replace(path, other):
    assert path.read_bytes() != other.read_bytes()
    shutil.copy(other, path)


# Functions of a file and that of another checkpoint.
DAMAGES = {
    "truncate": lambda path, _: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path, _: path.write_bytes(b""),
    "extend": lambda path, _: path.write_bytes(path.read_bytes() + b"\0"),
    "flip": lambda path, _: flip(path),
    "remove": lambda path, _: path.unlink(),
    "replace": replace,
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_the_one_before_is_offered_or_taken(run, file, damage):
    DAMAGES[damage](run / BAD / file, run / GOOD / file)
    before = contents(run)
    with pytest.raises(DamagedCheckpointError) as caught:
        catalog.newest(str(run))
    message = str(caught.value)
    assert str(run / BAD) in message and f"{run / GOOD} is intact" in message
    assert "--on_damaged_checkpoint=previous" in message
    # A manifest of step 20 is whole; it just cannot be that of this folder.
    named = "belong to step 20" if (file, damage) == (FILES[1], "replace") else file
    assert named in message
    assert contents(run) == before
    target, kind, said = Target(), DamagedCheckpointError, f"is damaged: {file}"
    if file == FILES[1] and damage == "remove":
        kind, said = FileNotFoundError, "is not a complete checkpoint"
    elif file == FILES[1] and damage == "replace":
        # All other files are wrong; the first of them is named.
        said = f"is damaged: {FILES[0]}"
    with pytest.raises(kind, match=re.escape(f"{run / BAD} {said}")):
        target.restore(run / BAD)
    assert target.is_untouched()

    assert catalog.newest(str(run), on_damaged="previous") == str(run / GOOD)
    names = sorted(p.name for p in run.iterdir())
    assert names == ["step_00000010", GOOD, f"{BAD}.damaged-1"]
    moved = {name.replace(BAD, f"{BAD}.damaged-1"): before[name] for name in before}
    assert contents(run) == moved
    # The run goes on and saves this step again, and it may happen again.
    save(run / BAD, 30)
    assert catalog.newest(str(run)) == str(run / BAD)
    (run / BAD / "training.npz").unlink()
    assert catalog.newest(str(run), on_damaged="previous") == str(run / GOOD)
    assert (run / f"{BAD}.damaged-2").is_dir()


@pytest.mark.parametrize("file", FILES)
def test_a_changed_bit_anywhere_in_a_file_is_noticed(path, file):
    target, good = Target(), (path / file).read_bytes()
    steps = 300 if file == manifest.NAME else 40
    for place in [*range(0, len(good), 1 + len(good) // steps), len(good) - 1]:
        flip(path / file, place)
        with pytest.raises(DamagedCheckpointError, match=re.escape(file)):
            target.restore(path)
        (path / file).write_bytes(good)
    assert target.is_untouched()


@pytest.mark.parametrize("names", [(BAD, GOOD), ("2", "1")])
def test_another_checkpoint_under_the_name_of_the_newest_is_noticed(tmp_path, names):
    save(tmp_path / names[0], 30, epoch=3)
    save(tmp_path / names[1], 20, epoch=2)
    shutil.rmtree(tmp_path / names[0])
    shutil.copytree(tmp_path / names[1], tmp_path / names[0])
    with pytest.raises(DamagedCheckpointError, match="belong to step 20, epoch 2"):
        catalog.newest(str(tmp_path))
    good = catalog.newest(str(tmp_path), on_damaged="previous")
    assert good == str(tmp_path / names[1])
    assert (tmp_path / f"{names[0]}.damaged-1").is_dir()


def test_damaged_ones_are_passed_over_until_one_is_whole(run):
    flip(run / BAD / FILES[0])
    flip(run / GOOD / FILES[1])
    with pytest.raises(DamagedCheckpointError, match="step_00000010 is intact"):
        catalog.newest(str(run))
    assert catalog.newest(str(run), on_damaged="previous") == str(run / "step_00000010")
    names = sorted(p.name for p in run.iterdir())
    assert names == ["step_00000010", f"{GOOD}.damaged-1", f"{BAD}.damaged-1"]


@pytest.mark.parametrize("on_damaged", ["stop", "previous"])
def test_where_none_is_whole_nothing_begins_by_itself(run, on_damaged):
    for path in run.iterdir():
        (path / FILES[3]).unlink()
    names = sorted(p.name for p in run.iterdir())
    for _ in range(2):
        with pytest.raises(DamagedCheckpointError, match="--restart starts over"):
            catalog.newest(str(run), on_damaged=on_damaged)
        # Were they set aside, the second start would find an empty folder.
        assert sorted(p.name for p in run.iterdir()) == names


def test_a_checkpoint_of_plsc_in_the_folder_is_told(tmp_path):
    (tmp_path / "119").mkdir()
    (tmp_path / "119" / "meta.json").write_text("{}")
    with pytest.raises(DamagedCheckpointError, match="plsc_tf.import_checkpoint"):
        catalog.newest(str(tmp_path))


def test_damage_in_an_older_checkpoint_does_not_matter(run):
    flip(run / GOOD / FILES[2])
    assert catalog.newest(str(run)) == str(run / BAD)


def test_only_the_files_that_are_asked_for_are_looked_at(path):
    """Weights can be taken from a checkpoint whose optimizer is damaged."""
    flip(path / "training.npz")
    target = Target()
    reader.restore(str(path), network=target.network, arrays={"weight": target.rows})
    assert not target.is_untouched()
    with pytest.raises(DamagedCheckpointError, match=r"training\.npz"):
        Target().restore(path)
