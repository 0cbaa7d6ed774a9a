"""One checkpoint folder, and the folders of a run."""

import itertools
import time

import keras
import numpy as np
import pytest
from blake3 import blake3

from plsc_tf.checkpoints import catalog, manifest, reader, writer
from plsc_tf.parallel.rows import ReplicatedRows
from plsc_tf.storage import files
from tests import programs
from tests.checkpoints import small
from tests.checkpoints.small import FILES, Target, save, seal
from tests.folders import contents


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_what_three_replicas_saved_loads_on_any_number(tmp_path, replicas):
    save(tmp_path / "0", step=5, epoch=1)
    assert list(contents(tmp_path / "0")) == FILES
    target = Target(replicas)
    state = target.restore(tmp_path / "0")
    assert target.holds(5)
    assert state["epoch"] == 1 and state["flags"] == {"learning_rate": 0.1}


def test_a_sharded_head_loads_into_a_replicated_one(path):
    array = ReplicatedRows(keras.Variable(np.zeros_like(small.WHOLE)))
    reader.restore(str(path), arrays={"weight": array})
    np.testing.assert_array_equal(array.read(0, 7), small.WHOLE + 5)


def test_the_manifest_tells_size_and_checksum_of_every_file(path):
    described = manifest.read(str(path))["files"]
    assert sorted([*described, manifest.NAME]) == FILES
    for name, expected in described.items():
        text = (path / name).read_bytes()
        assert expected == {"bytes": len(text), "blake3": blake3(text).hexdigest()}


@pytest.mark.parametrize("layout", [{"tile_rows": 5}, {"sparse": True}])
@pytest.mark.parametrize("saved_on", [1, 4])
def test_rows_are_streamed_in_chunks_across_the_borders_of_shards(
    tmp_path, monkeypatch, layout, saved_on
):
    monkeypatch.setattr(writer, "FILE_BYTES", 128 + 17 * 8)
    monkeypatch.setattr("plsc_tf.checkpoints.rows.PIECE_BYTES", 4 * 8)
    monkeypatch.setattr("plsc_tf.parallel.rows.PIECE_BYTES", 3 * 8)
    whole = np.random.default_rng(0).standard_normal((61, 2)).astype(np.float32)
    save(tmp_path / "0", array=small.make_rows(saved_on, whole, **layout))
    other = small.make_rows(3, np.zeros_like(whole), **layout)
    written, write = [], other.write

    def watched(low, rows):
        written.append((low, len(rows)))
        write(low, rows)

    monkeypatch.setattr(other, "write", watched)
    reader.restore(str(tmp_path / "0"), arrays={"weight": other})
    np.testing.assert_array_equal(other.read(0, 61), whole)
    # Nothing crosses a border of files (17, 17, 17 and 10 rows), of shards (21, 20
    # and 20) or of tiles, a part of which is slow to write; nothing has over 4 rows.
    tile = layout.get("tile_rows", 61)
    tiles = [first + low for first, size in ((0, 21), (21, 20), (41, 20))
             for low in range(0, size, tile)]  # fmt: skip
    borders = sorted({*tiles, 17, 34, 51, 61})
    expected = [(low, min(4, end - low)) for begin, end in itertools.pairwise(borders)
                for low in range(begin, end, 4)]  # fmt: skip
    assert sorted(written) == expected


def test_nothing_is_overwritten(path):
    with pytest.raises(FileExistsError, match="not overwritten"):
        save(path, step=6)
    target = Target()
    target.restore(path)
    assert target.holds(5)


def test_the_manifest_is_written_last_then_the_folder_is_named(tmp_path, monkeypatch):
    seen = {}

    def watch(name):
        function = getattr(files, name)

        def watched(path, *args, **options):
            (folder,) = tmp_path.iterdir()
            held = list(contents(folder))
            seen[f"{name} {path.rpartition('/')[2]}"] = folder.name, held
            return function(path, *args, **options)

        monkeypatch.setattr(files, name, watched)

    watch("write")
    watch("rename")
    save(tmp_path / "0")
    name, before = seen["write manifest.json"]
    assert catalog.INTERRUPTED.fullmatch(name)
    assert before == [n for n in FILES if n != manifest.NAME]
    assert seen[f"rename {name}"] == (name, FILES)
    assert [p.name for p in tmp_path.iterdir()] == ["0"]


@pytest.mark.parametrize("file", [*FILES, ""])
def test_an_error_in_any_file_leaves_nothing(tmp_path, monkeypatch, file):
    name = "write" if file else "rename"
    function = getattr(files, name)

    def failing(*args, **options):
        if any(isinstance(arg, str) and arg.endswith(file) for arg in args):
            raise OSError(5, "Input/output error")
        return function(*args, **options)

    monkeypatch.setattr(files, name, failing)
    with pytest.raises(OSError, match="Input/output"):
        save(tmp_path / "0")
    assert not list(tmp_path.iterdir())


def test_without_atomic_renames_the_manifest_makes_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "atomic_rename", lambda path: False)
    small.save_run(tmp_path, (10, 20))
    assert catalog.newest(str(tmp_path)) == str(tmp_path / "step_00000020")
    # What an interrupted save leaves there is no checkpoint, and no damaged one.
    (tmp_path / "step_00000020" / manifest.NAME).unlink()
    assert catalog.newest(str(tmp_path)) == str(tmp_path / "step_00000010")
    catalog.sweep(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000010"]


@pytest.mark.parametrize(
    "parts", [[(0, 2), (4, 6)], [(0, 2), (2, 6)], [(0, 5)], [(0, 7)], [(1, 6)], []]
)
def test_rows_that_are_missing_or_too_many_are_never_filled_up(path, parts):
    changed = manifest.read(str(path))
    (part,) = changed["arrays"]["weight"]["parts"]
    changed["arrays"]["weight"]["parts"] = [
        {**part, "first": first, "last": last} for first, last in parts
    ]
    (path / manifest.NAME).write_bytes(manifest.encode(changed))
    target = Target()
    with pytest.raises(manifest.DamagedCheckpointError, match="do not make up 7 rows"):
        target.restore(path)
    assert target.is_untouched()


@pytest.mark.parametrize("change", [lambda x: x[:6], np.asfortranarray, np.int32])
def test_a_file_with_other_rows_than_its_manifest_says_is_refused(path, change):
    """All checksums are right, but numpy would read other weights from the file."""
    changed = manifest.read(str(path))
    np.save(path / changed["arrays"]["weight"]["parts"][0]["file"], change(small.WHOLE))
    seal(path, changed)
    with pytest.raises(manifest.DamagedCheckpointError, match="does not hold 7 rows"):
        Target().restore(path)


def test_unfinished_folders_are_no_checkpoints(tmp_path):
    save(tmp_path / "3", step=40)
    save(tmp_path / "step_00000050", step=50)
    (tmp_path / "9").mkdir()  # no manifest: never completed
    (tmp_path / "4.writing-0123abcd").mkdir()
    (tmp_path / "7").write_text("a file")
    # Else, one large manifest could be read for each of many links.
    (tmp_path / "8").symlink_to("step_00000050")
    (tmp_path / "6").mkdir()
    (tmp_path / "6/manifest.json").symlink_to(tmp_path / "step_00000050/manifest.json")
    found = catalog.find_all(str(tmp_path))
    assert [step for step, _ in found] == [40, 50]
    # Results of other programs may be in folders with numbers.
    (tmp_path / "results/2024").mkdir(parents=True)
    assert not catalog.is_run(str(tmp_path / "results"))
    assert catalog.resolve(str(tmp_path)) == found[1][1] == f"{tmp_path}/step_00000050"
    assert catalog.resolve(str(tmp_path / "3")) == str(tmp_path / "3")
    with pytest.raises(FileNotFoundError, match="is not a checkpoint .*contains none"):
        catalog.resolve(str(tmp_path / "9"))
    assert catalog.newest(str(tmp_path / "absent")) is None
    # Of two at one step that of the finished epoch is newer.
    save(tmp_path / "1", step=50, epoch=2)
    assert catalog.resolve(str(tmp_path)) == str(tmp_path / "1")
    # Otherwise, training and export could use different checkpoints.
    (tmp_path / "manifest.json").symlink_to("1/manifest.json")
    for function in catalog.resolve, catalog.newest:
        with pytest.raises(ValueError, match="is not a checkpoint: remove manifest"):
            function(str(tmp_path))


@pytest.mark.parametrize("held", [True, False])
def test_beside_a_training_one_file_is_written_at_a_time(tmp_path, monkeypatch, held):
    write, writing, counts = files.write, [], []

    def watched(path, *args, **options):
        writing.append(path)
        counts.append(len(writing))
        time.sleep(0.1)
        writing.remove(path)
        return write(path, *args, **options)

    monkeypatch.setattr(files, "write", watched)
    content = small.make_content(5)
    content.held = held
    writer.save(str(tmp_path / "0"), content)
    assert max(counts) == (1 if held else writer.THREADS)


def test_a_checkpoint_of_format_2_is_verified_by_its_sha256(path):
    seal(path, {**manifest.read(str(path)), "format": 2}, "sha256")
    target = Target()
    target.restore(path)
    assert target.holds(5)
    file = path / FILES[-1]
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(manifest.DamagedCheckpointError, match="not have the checksum"):
        target.restore(path)


def test_another_format_is_refused(path, tmp_path):
    changed = {**manifest.read(str(path)), "format": 99}
    (path / manifest.NAME).write_bytes(manifest.encode(changed))
    # It is not damaged, so no other checkpoint takes its place.
    with pytest.raises(ValueError, match="format=99"):
        catalog.newest(str(tmp_path), on_damaged="previous")


def test_what_users_store_reads_back_as_json(tmp_path):
    extra = {"by_class": {10: 1.5, 9: 2.5}, "pair": (1, 2), "name": "Zoë"}
    save(tmp_path / "0", extra=extra)
    found = manifest.read(str(tmp_path / "0"))["state"]["extra"]
    assert found == {"by_class": {"10": 1.5, "9": 2.5}, "pair": [1, 2], "name": "Zoë"}


def test_prune_keeps_the_newest(tmp_path):
    for epoch in range(4):
        # Epoch 4 was better still, but the disk was full.
        best = {"epoch": 4 if epoch == 3 else 2, "accuracy": 0.9}
        save(tmp_path / str(epoch), step=10 * epoch, best=best)
    catalog.prune(str(tmp_path), keep=0)
    assert len(catalog.find_all(str(tmp_path))) == 4
    # Otherwise, a checkpoint that was moved to another disk ends this training and
    # all later ones.
    (tmp_path / "0").rename(tmp_path / "elsewhere")
    (tmp_path / "0").symlink_to(tmp_path / "elsewhere")
    catalog.prune(str(tmp_path), keep=2)
    assert manifest.read(str(tmp_path / "elsewhere"))
    catalog.remove(str(tmp_path / "elsewhere"))
    assert [step for step, _ in catalog.find_all(str(tmp_path))] == [20, 30]
    catalog.prune(str(tmp_path), keep=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2", "3"]


def test_prune_keeps_one_from_which_a_run_can_resume(tmp_path):
    for epoch, kind in enumerate(["training", "training", "weights", "weights"]):
        save(tmp_path / str(epoch), step=10 * epoch, kind=kind)
    catalog.prune(str(tmp_path), keep=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1", "3"]


def test_sweep_removes_what_interruptions_left_and_nothing_else(tmp_path):
    save(tmp_path / "3")
    remains = ["4.writing-0123abcd", "step_00000004.writing-0123abcd", "2.removing"]
    others = ["2.damaged-1", "mine.writing-0123abcd", "export"]
    for name in remains + others:
        (tmp_path / name).mkdir()
    catalog.sweep(str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["3", *others])


def test_the_end_of_the_process_waits_for_a_save(tmp_path):
    code = (
        "import sys, time, pathlib\n"
        "from plsc_tf.checkpoints.writer import BackgroundSaver\n"
        "def save():\n"
        "    time.sleep(0.3)\n"
        "    pathlib.Path(sys.argv[1]).write_text('all')\n"
        "BackgroundSaver().submit(save)\n"
        "sys.exit(143)\n"
    )
    programs.run("-c", code, tmp_path / "saved", status=143)
    assert (tmp_path / "saved").read_text() == "all"
