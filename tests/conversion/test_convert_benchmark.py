"""The benchmark of conversion measures what it says."""

import json

from benchmarks import convert
from benchmarks.convert import ConvertCase


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
