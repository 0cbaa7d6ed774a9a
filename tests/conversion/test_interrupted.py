"""Conversions that are ended in the middle go on, with the same output."""

import os
import shutil
import subprocess

import pytest

from plsc_tf.data.conversion import run
from plsc_tf.data.conversion.inputs import FilesInput
from plsc_tf.data.readers.formats import BASE64
from plsc_tf.storage.errors import StorageError
from tests.conversion import drawn, killed
from tests.conversion.test_round_trips import inputs
from tests.marks import slow
from tests.small_disk import mounted

EXAMPLES = drawn.images(900)


def stamps(folder):
    return {p.name: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.iterdir()}


@pytest.mark.parametrize(
    ("origin", "shuffle"),
    [("base64", True), ("base64", False), ("tfrecord", True), ("source", False)],
)
def test_any_block_may_be_the_last(tmp_path, origin, shuffle):
    examples = EXAMPLES[:200] if origin == "source" else EXAMPLES
    source = inputs(origin, tmp_path / "in", examples)
    source.num_buckets = lambda: 5
    options = {"num_shards": 3, "seed": 1, "shuffle": shuffle}
    options["memory_mb"] = 0.2
    run.convert(source, run.ConversionPlan(str(tmp_path / "a"), **options))

    class Ended(Exception):
        pass

    whole, blocks = source.batches, []

    def some(*arguments):
        for number, batch in enumerate(whole(*arguments)):
            if number == 1:
                raise Ended
            blocks.append(batch)
            yield batch

    source.batches = some
    plan = run.ConversionPlan(str(tmp_path / "b"), commit_every_s=0, **options)
    for _ in range(40):
        try:
            run.convert(source, plan)
            break
        except Ended:
            assert not (tmp_path / "b").exists()
    assert len(blocks) >= 4
    assert drawn.digests(tmp_path / "b") == drawn.digests(tmp_path / "a")


@pytest.mark.parametrize(
    ("layout", "shuffle"),
    [
        ("base64", True),
        slow("base64", False),
        slow("tfrecord", True),
        slow("tfrecord", False),
    ],
)
def test_killed_before_each_of_its_last_steps(tmp_path, layout, shuffle):
    paths = drawn.write(layout, tmp_path / "in", EXAMPLES[:30])
    before = drawn.digests(tmp_path / "in"), stamps(tmp_path / "in")
    killed.convert(layout, paths, tmp_path / "undisturbed", shuffle)
    expected = drawn.digests(tmp_path / "undisturbed")
    for steps in range(0, 200, 11):
        arguments = layout, paths, tmp_path / f"out-{steps}", shuffle
        if was_killed := killed.attempt(*arguments, steps=steps):
            killed.attempt(*arguments, steps=3)  # again, as soon as it goes on
        killed.convert(*arguments)
        assert drawn.digests(tmp_path / f"out-{steps}") == expected
        shutil.rmtree(tmp_path / f"out-{steps}")
        if not was_killed:
            break
    assert steps > 30 and not was_killed
    assert (drawn.digests(tmp_path / "in"), stamps(tmp_path / "in")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "undisturbed"]


def test_work_from_an_archive_is_not_gone_on_with(tmp_path):
    # It would be published in place of the images that were checked.
    paths = drawn.write("base64", tmp_path / "in", EXAMPLES[:30])
    work = tmp_path / ".out.converting"
    assert killed.attempt("base64", paths, tmp_path / "out", steps=30)
    (work / ".begun").chmod(0o600)  # only the time tells that
    for path in work.glob("*/*0"):
        path.write_bytes(path.read_bytes()[::-1])
    killed.convert("base64", paths, tmp_path / "out", shuffle=False)
    assert drawn.read_base64(tmp_path / "out")[:30] == EXAMPLES[:30]


def test_other_options_start_anew(tmp_path):
    source = inputs("base64", tmp_path / "in", EXAMPLES)
    work = tmp_path / ".out.converting"
    (work / "shards").mkdir(parents=True)
    (work / "shards/base64_rank_0").write_bytes(b"old")
    (work / "journal-3.json").write_text('{"fingerprint": "another", "state": {}}')
    out = str(tmp_path / "out")
    run.convert(source, run.ConversionPlan(out, output_format="base64", shuffle=False))
    assert drawn.read_base64(tmp_path / "out") == EXAMPLES


def test_two_processes_do_not_write_one_output(tmp_path):
    source = inputs("base64", tmp_path / "in", EXAMPLES)
    plan = run.ConversionPlan(str(tmp_path / "out"), commit_every_s=0)
    batches = source.batches

    def busy(*arguments):
        source.batches = batches
        with pytest.raises(RuntimeError, match="is in use"):
            run.convert(source, plan)
        return batches(*arguments)

    source.batches = busy
    run.convert(source, plan)


class Changing(FilesInput):
    """Files that are touched after they were read."""

    def batches(self, *arguments):
        yield from super().batches(*arguments)
        os.utime(self.paths[0], ns=(1, 1))


def test_files_that_change_meanwhile_are_noticed(tmp_path):
    source = Changing(BASE64, drawn.write_base64(tmp_path / "in", EXAMPLES))
    with pytest.raises(RuntimeError, match="input changed during the conversion"):
        run.convert(source, run.ConversionPlan(str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_gone_on_from(tmp_path):
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", "400k") as disk:
        source = inputs("base64", tmp_path / "in", EXAMPLES)
        options = {"seed": 1, "memory_mb": 1, "commit_every_s": 0}
        plan = run.ConversionPlan(str(disk / "out"), **options)
        with pytest.raises(StorageError, match="is full: .*the same command again"):
            run.convert(source, plan)
        assert not (disk / "out").exists()
        subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
        run.convert(source, plan)
        run.convert(source, run.ConversionPlan(str(tmp_path / "roomy"), **options))
        assert drawn.digests(disk / "out") == drawn.digests(tmp_path / "roomy")
