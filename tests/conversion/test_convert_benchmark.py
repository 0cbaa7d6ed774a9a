"""The benchmark of conversion measures what it says."""

import json

import pytest

from benchmarks import convert
from benchmarks.convert import ConvertCase
from tests.conversion import drawn


def test_the_last_line_is_the_measurement_as_json(tmp_path, capsys):
    case = ConvertCase(lines=403, image_bytes=300, rounds=2, folder=str(tmp_path))
    convert.main(case)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {name: len(all_) for name, all_ in figures["rounds_s"].items()} == {
        "convert": 2,
        "copy_twice": 2,
        "sqlite": 1,
        "sqlite_whole_lines": 1,
    }
    assert figures["vs_sqlite"] > 0 and figures["vs_copy"] > 0
    assert 0 <= figures["peak_rss_mb"] <= 300
    assert 403 * 400 / 1e6 < figures["megabytes"] + 0.05 < 0.3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("letters", [True, False])
def test_sqlite_does_the_same_work(tmp_path, monkeypatch, letters):
    case = ConvertCase(lines=100, image_bytes=30)
    (tmp_path / "parts").mkdir()
    convert.write_parts(case, tmp_path / "parts")
    monkeypatch.setattr(convert.shutil, "rmtree", lambda folder: None)
    convert.shuffle_by_sqlite(
        case, tmp_path / "parts", tmp_path / "sqlite", letters=letters
    )
    names = [f"base64_rank_{rank}" for rank in range(8)]
    (tmp_path / "sqlite/file_list.txt").write_text("\n".join(names))
    lines = [(tmp_path / "sqlite" / name).read_bytes().count(b"\n") for name in names]
    assert lines == [13] * 8
    parts = drawn.read_base64(tmp_path / "parts")
    found = drawn.read_base64(tmp_path / "sqlite")
    assert sorted(found[:100]) == sorted(parts) and found[:100] != parts
    assert found[100:] == found[:4]
